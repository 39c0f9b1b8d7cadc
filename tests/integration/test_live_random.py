"""Random turns, crashes and reconnects: what readers end up with against what was written."""

import asyncio
import random

import pytest

from infra.settings import Settings
from producers.live import Event, EventId, Hub, Snapshot
from tests.events_by_hand import Reader, Writer, hub_of, run, soon

THREAD = "chat:random"


class Story:
    """Writes turns as workers do: texts by deltas, durable later than they are seen; attempts
    that crash before or after a commit; batches that the broker never gets."""

    def __init__(self, writer: Writer, chance: random.Random, *, lossy: bool) -> None:
        self.writer = writer
        self.lossy = lossy
        self._chance = chance
        self._messages = 0
        #: What must have been seen, by id: durable, or written by an attempt that ended.
        self.durable: list[str] = []

    async def turn(self, number: int) -> None:
        attempt = 1
        while not await self._attempt(f"m{number}", attempt):
            attempt += 1

    async def _attempt(self, message_id: str, attempt: int) -> bool:
        self.writer.claim(message_id, attempt)
        for _ in range(self._chance.randint(1, 3)):
            if not await self._message():
                return False
        end = self.writer.ended()
        self._keep(end)
        # A crash between commit and broker.
        if self._chance.random() < 0.8:
            self.writer.publish(end)
        return True

    async def _message(self) -> bool:
        self._messages += 1
        name = f"t{self._messages}"
        words = [f"{self._chance.randint(0, 9)}-" for _ in range(self._chance.randint(0, 5))]
        for word in words:
            self._say(self.writer.token(word, name))
            await asyncio.sleep(self._chance.choice((0, 0, 0.002, 0.01)))
        whole = self.writer.message("".join(words), name)
        step = self.writer.made("step", node="say", ns="", keys=["messages"])
        fate = self._chance.random()
        if fate < 0.1 and self._messages < 40:
            # The worker dies; whether the message was seen or not, it is void.
            if self._chance.random() < 0.5:
                self.writer.publish(whole)
            return False
        if self._chance.random() < 0.5:
            self._say(whole, step)
            self._keep(whole, step)
        else:
            self._keep(whole, step)
            self._say(whole, step)
        return not (fate < 0.15 and self._messages < 40)

    def _keep(self, *events: dict[str, object]) -> None:
        self.writer.keep(*events, stateful=True)
        self.durable += [str(event["id"]) for event in events]

    def _say(self, *events: dict[str, object]) -> None:
        if self.lossy and self._chance.random() < 0.05:
            self.writer.lose(*events)
        else:
            self.writer.publish(*events)


class Visitor:
    """A page that leaves at any moment and comes back with the last event that it has."""

    def __init__(self, hub: Hub, chance: random.Random) -> None:
        self._hub = hub
        self._chance = chance
        self.stays = False
        self.reader = Reader(hub, THREAD)
        self.items: list[Event | Snapshot] = self.reader.items  # type: ignore[assignment]

    async def come_and_go(self) -> None:
        while not self.stays:
            await asyncio.sleep(self._chance.random() * 0.05)
            await self.reader.leave()
            last = self.reader.last
            self.reader = Reader(self._hub, THREAD, last)
            # One list: what a page shows is not forgotten when its connection goes.
            self.items += self.reader.items  # type: ignore[arg-type]
            self.reader.items = self.items  # type: ignore[assignment]


def check_order(items: list[Event | Snapshot], durable: list[str]) -> None:
    """From each snapshot on ids rise, and no durable event between two of them is missing."""
    ids = {EventId.parse(name) for name in durable}
    at: EventId | None = None
    for item in items:
        if isinstance(item, Snapshot):
            at = item.head
            continue
        assert at is not None and item.id > at, f"{item.id} came after {at}"
        missed = sorted(i for i in ids if at < i < item.id)
        assert not missed, f"{item.id} came after {at} without {[*map(str, missed)]}"
        at = item.id


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_everything_once_and_in_order(
    seed: int, lossy: bool, writer: Writer, settings: Settings
) -> None:
    """Those who stay and those who come and go end up with the conversation as it is."""

    async def watch() -> None:
        chance = random.Random(f"{seed} {lossy}")
        story = Story(writer, chance, lossy=lossy)
        writer.create()
        async with hub_of(settings, look_every=0.1) as one, hub_of(settings, 0.1) as two:
            stays = [Reader(hub, THREAD) for hub in (one, one, two)]
            visitors = [Visitor(hub, random.Random(seed)) for hub in (one, two, two)]
            going = [asyncio.create_task(v.come_and_go()) for v in visitors]
            for number in range(8):
                await story.turn(number)
                await asyncio.sleep(chance.choice((0, 0.02, 0.2)))
            for visitor in visitors:
                visitor.stays = True
            await asyncio.gather(*going)
            expected = {m["message_id"]: m["text"] for m in writer.state}
            readers = [*stays, *(v.reader for v in visitors)]
            for reader in readers:
                await soon(lambda r=reader: r.texts == expected)
                await soon(lambda r=reader: r.last >= EventId.parse(story.durable[-1]))
                if not lossy:
                    check_order(reader.items, story.durable)  # type: ignore[arg-type]

    run(watch())
