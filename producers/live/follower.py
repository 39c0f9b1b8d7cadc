"""Following one thread: what a reader is to see after what it has seen.

In the mainstream the stream's events as they come. A snapshot stands in their place where
their order can't be made whole, and where what was shown is void or of an earlier generation.
After it come the events that follow its head, whether or not they had been shown before.
"""

from typing import TypeAlias

from .events import Event
from .ids import FIRST, EventId
from .log import Log, Reading
from .snapshot import Reason, Snapshot, Snapshots
from .trail import Trail

Item: TypeAlias = Event | Snapshot

#: Snapshots in one reading; each is newer than the one before it.
_ROUNDS = 5


class Follower:
    """last: the newest event that was shown."""

    def __init__(
        self, thread_id: str, log: Log, snapshots: Snapshots, last: EventId, *, unsure: bool
    ) -> None:
        self.thread_id = thread_id
        self.last = last
        #: Something of the present turn has been missed: a snapshot has to follow its end.
        self.holed = False
        #: The last reading was without the broker.
        self.away = False
        #: Why a snapshot comes next.
        self.renew: Reason | None = None
        self._log = log
        self._snapshots = snapshots
        self._trail = Trail(unsure)
        self._items: list[Item] = []

    def next_in_line(self, batch: list[Event]) -> bool:
        """Whether a batch of the stream simply goes on from the last event."""
        first, epoch = batch[0], self.last.epoch
        return (
            first.id.epoch == epoch == batch[-1].id.epoch
            and first.type != "turn"
            and (first.after is None or first.after <= self.last)
            and not any(event.short for event in batch)
        )

    def show(self, event: Event) -> bool:
        """It is shown next; whether others may follow it at once."""
        self.last = event.id
        self._trail.note(event)
        if event.type in ("ended", "status") and self.holed:
            self.renew = "gone"
            return False
        return True

    async def read(self, *, upto: EventId = FIRST, wait: float = 0.0) -> None:
        """Find what is to be shown next, as Log.read does; `taken()` gives it.

        Raises UnknownThread, FleetUnavailable; then it can be read again, and what
        `taken()` gives comes first.
        """
        for left in reversed(range(_ROUNDS)):
            renewed = self.renew is not None
            if self.renew is not None:
                await self._renew(self.renew)
            reading = await self._log.read(self.thread_id, self.last, upto=upto, wait=wait)
            self.away = reading.away
            if reading.hole and not renewed and left:
                self.renew = "gone"
                continue
            self.holed = self.holed or reading.hole or reading.early
            if await self._shown(reading):
                return

    def taken(self) -> list[Item]:
        """The items, which are then gone from here."""
        items, self._items = self._items, []
        return items

    async def _shown(self, reading: Reading) -> bool:
        """Whether all of its events were."""
        for event in reading.events:
            if event.anew or (self._begins_again(event) and await self._void()):
                self.renew = "retracted"
                return False
            if event.id in reading.alone and await self._stale():
                # That it was taken back has been lost on its way.
                self.holed = True
            self._items.append(event)
            if not self.show(event):
                return False
        return True

    def _begins_again(self, event: Event) -> bool:
        """Whether an earlier claim did not end. Of a newer one whose beginning was lost on its
        way, and of a change without a turn, it is not known: then what counts is whether
        something of the last one is void."""
        newer = event.id.epoch > self.last.epoch
        return event.again or (newer and event.type != "turn")

    async def _renew(self, reason: Reason) -> None:
        taken = await self._snapshots.take(self.thread_id, reason)
        self.renew = None
        self.last = taken.snapshot.head
        self.holed = taken.hole
        self._trail.clear(unsure=taken.unsure)
        self._items.append(taken.snapshot)

    async def _void(self) -> bool:
        """Whether something of what was shown has not become durable, and never will."""
        return self._trail.broken or await self._stale()

    async def _stale(self) -> bool:
        """Whether events that were shown have not become durable."""
        if not (doubted := self._trail.doubted):
            return False
        return bool(doubted - await self._log.durable.known(self.thread_id, doubted))
