"""The hub: all that one process watches, over one connection to the broker.

async for item in hub.watch(thread_id, after):
    match item:
        case Snapshot(): ...    # in place of what is gone; live goes on after item.head
        case Event(): ...
        case Lagging(): ...     # the last one: come back with item.last
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import Any

from infra.settings import Settings

from ..errors import ProducerError, UnknownThread
from .attendance import Attendance
from .channels import Channels
from .durable import Durable
from .events import Event, Lagging, batch
from .follower import Follower, Item
from .ids import FIRST, EventId
from .log import Log
from .snapshot import ON_ITS_WAY, Snapshot, Snapshots
from .streams import BrokerAway, Streams
from .tasks import apart, end
from .topic import Topic
from .watcher import Watcher

log = logging.getLogger("fleet.live")

#: Seconds between looks into Postgres.
LOOK_EVERY = 1.0
_ANY = EventId(2**63 - 1, 2**31 - 1)
#: Seconds that a reader waits for its thread's channel to be heard.
_CHANNEL_WAIT = 2.0


class Hub:
    """One per process: `start` in its event loop, `aclose` at its end."""

    def __init__(self, settings: Settings, *, look_every: float = LOOK_EVERY) -> None:
        durable = Durable(settings.require_postgres(), settings.client_timeout)
        self._log = Log(Streams(settings.redis_url), durable)
        self._snapshots = Snapshots(self._log)
        self._channels = (
            Channels(settings.redis_url, self._heard, self._back) if settings.redis_url else None
        )
        self._attendance = (
            Attendance(settings.redis_url, settings.events_age, self._unheard)
            if settings.redis_url
            else None
        )
        self._topics: dict[str, Topic] = {}
        self._look_every = look_every
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Servers that are away are tried again: it never fails for them."""
        self._run(self._look_on())
        if self._attendance is not None:
            await self._attendance.begin()
            self._run(self._attendance.keep_saying())
        if self._channels is not None:
            self._run(self._channels.run())

    async def aclose(self) -> None:
        """All watches end."""
        self._closed = True
        for topic in list(self._topics.values()):
            topic.close()
            for watcher in list(topic.watchers):
                watcher.end()
        await end(self._tasks)
        if self._channels is not None:
            await self._channels.aclose()
        if self._attendance is not None:
            await self._attendance.aclose()
        await self._log.streams.aclose()
        await self._log.durable.aclose()

    @property
    def watched(self) -> list[str]:
        """The threads that somebody watches."""
        return list(self._topics)

    async def watch(
        self,
        thread_id: str,
        after: EventId | None = None,
        *,
        queue: int = 1000,
        wait: bool = False,
        new: bool = False,
    ) -> AsyncGenerator[Event | Snapshot | Lagging]:
        """What happens in a thread, in order and each thing once, until the reader leaves.

        after: the last event that the reader has, after which it goes on exactly where the
        stream still has it; else, and without one, a Snapshot comes first. queue: how many
        items may wait for the reader; then it gets Lagging and the watch ends. wait: a thread
        that does not exist yet is waited for. new: it did not when the reader last looked, who
        gets all of its events and no Snapshot first.

        Raises UnknownThread, and FleetUnavailable where Postgres is away at its beginning;
        later outages are waited out. Whether the caller may see the thread is for it to know.
        """
        topic = self._topic(thread_id)
        watcher = Watcher(queue)
        topic.watchers.add(watcher)
        if self._closed:
            watcher.end()
        try:
            for item in await apart(self._joined(topic, watcher, after, new=new, wait=wait)):
                yield item
            while (found := await watcher.next()) is not None:
                yield found
                if isinstance(found, Lagging):
                    return
        finally:
            topic.watchers.discard(watcher)
            if not topic.watchers and self._topics.get(thread_id) is topic:
                del self._topics[thread_id]
                topic.close()
                if self._channels is not None:
                    self._channels.remove(thread_id)

    def _topic(self, thread_id: str) -> Topic:
        """That of the thread, which is watched from now on."""
        found = self._topics.get(thread_id)
        if found is None:
            found = self._topics[thread_id] = Topic(thread_id, self._log, self._snapshots)
        return found

    async def _joined(
        self, topic: Topic, watcher: Watcher, after: EventId | None, *, wait: bool, new: bool
    ) -> list[Item]:
        """What a reader gets before it goes on with the others."""
        if watcher not in topic.watchers:
            return []
        await self._subscribed(topic.thread_id)
        await topic.begin()
        known = None if after is None else await self._log.resumed(topic.thread_id, after)
        # What it has seen of an attempt may be void by now.
        unsure = known is not None and not (known.settles or known.type == "turn")
        follower = Follower(
            topic.thread_id, self._log, self._snapshots, after or FIRST, unsure=unsure
        )
        if known is None and not new:
            follower.renew = "first" if after is None else "gone"
        while watcher in topic.watchers:
            topic.stirred.clear()
            try:
                await follower.read(upto=_ANY, wait=ON_ITS_WAY)
                break
            except UnknownThread:
                if not wait or self._closed:
                    raise
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_every):
                    await topic.stirred.wait()
        if follower.holed:
            topic.holed()
        watcher.last = follower.last
        return follower.taken()

    async def _subscribed(self, thread_id: str) -> None:
        if self._channels is not None:
            heard = self._channels.add(thread_id)
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHANNEL_WAIT):
                    await heard.wait()

    def _heard(self, thread_id: str, text: bytes) -> None:
        topic = self._topics.get(thread_id)
        if topic is None:
            return
        try:
            events = batch(text)
        except ValueError as exc:
            log.warning("what came on the channel of %s can't be read: %s", thread_id, exc)
            return
        if events:
            topic.heard(events)

    def _back(self) -> None:
        """Channels are heard again: what was published meanwhile is in the streams."""
        self._log.streams.back()
        self._run(self._catch_up())

    def _unheard(self) -> None:
        """Workers may have published nothing for a while."""
        for topic in self._topics.values():
            topic.holed()
            topic.stir()

    async def _catch_up(self) -> None:
        positions = {t.thread_id: t.last for t in self._topics.values() if t.last is not None}
        try:
            found = await self._log.streams.ahead(positions)
        except BrokerAway:
            found = list(positions)
        for thread_id in found:
            if (topic := self._topics.get(thread_id)) is not None:
                topic.stir()

    async def _look_on(self) -> None:
        """Once a second: what Postgres has and the stream has not brought."""
        away = False
        while True:
            await asyncio.sleep(self._look_every)
            try:
                await self._look()
                away = False
            except ProducerError as exc:
                if not away:
                    log.warning("events can't be looked for: %s", exc.message)
                away = True
            except Exception:
                log.exception("events can't be looked for")

    async def _look(self) -> None:
        positions = {t.thread_id: t.last for t in self._topics.values() if t.last is not None}
        if not positions:
            return
        found = await self._log.durable.ahead(positions)
        broker = self._channels is not None and self._channels.up
        for thread_id in positions:
            if (topic := self._topics.get(thread_id)) is not None:
                topic.looked(found.get(thread_id), broker=broker)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
