"""A thread that is watched: what comes in once goes out to all its watchers.

Batches that follow upon one another go straight on. Where a batch does not (a turn begins,
something is missing, the broker was away) the thread is read anew, in a task of its own, and
what comes meanwhile is read with it.
"""

import asyncio
import logging
from contextlib import suppress

from ..errors import ProducerError, UnknownThread
from .events import Event
from .follower import Follower, Item
from .ids import FIRST, EventId
from .log import Log
from .snapshot import Snapshots
from .streams import BrokerAway
from .watcher import Watcher

log = logging.getLogger("fleet.live")


class Topic:
    def __init__(self, thread_id: str, events: Log, snapshots: Snapshots) -> None:
        self.thread_id = thread_id
        self.watchers: set[Watcher] = set()
        #: Set when something came, for those who wait for the thread to exist.
        self.stirred = asyncio.Event()
        self._log = events
        self._snapshots = snapshots
        self._follower: Follower | None = None
        self._beginning = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._again = False
        self._upto = FIRST
        self._behind = False
        self._suspect: EventId | None = None

    @property
    def last(self) -> EventId | None:
        """The newest event that went out; None while it is being read, or not begun."""
        if self._follower is None or self._reading is not None:
            return None
        return self._follower.last

    async def begin(self) -> None:
        """Know where the thread is: what comes later goes out. Raises FleetUnavailable.

        Who joins reads what was before by itself, up to here at least.
        """
        async with self._beginning:
            if self._follower is not None:
                return
            # Without a stream nothing has been shown that is not durable.
            end, unsure = None, self._log.streams.there
            with suppress(BrokerAway):
                end = await self._log.streams.newest(self.thread_id)
                unsure = end is not None and not end.settles
            durable = await self._log.durable.newest(self.thread_id) or FIRST
            last = max(durable, end.id) if end is not None else durable
            self._follower = Follower(
                self.thread_id, self._log, self._snapshots, last, unsure=unsure
            )
        # What came meanwhile was not heard.
        self.stir()

    def holed(self) -> None:
        """A watcher has missed something of the present turn: a snapshot is to follow it."""
        if self._follower is not None:
            self._follower.holed = True

    def heard(self, batch: list[Event]) -> None:
        """A batch of the stream has come."""
        self.stirred.set()
        follower = self._follower
        if follower is None or batch[-1].id <= follower.last:
            return
        if self._reading is not None or not follower.next_in_line(batch):
            self.stir()
            return
        for event in batch:
            if event.id > follower.last:
                going_on = follower.show(event)
                self._give(event)
                if not going_on:
                    self.stir()
                    return

    def looked(self, newest: EventId | None, *, broker: bool) -> None:
        """What Postgres has after the newest that went out; None for nothing.

        With the broker, it is given the time until the next look to come by the stream.
        """
        follower = self._follower
        if follower is None:
            return
        if newest is not None:
            late = newest if not broker else self._suspect
            if late is not None and late > follower.last:
                self.stir(upto=late)
        elif follower.renew is not None or (self._behind and broker):
            self.stir()
        self._suspect = newest

    def stir(self, *, upto: EventId = FIRST) -> None:
        """Read what there is, now or once more. upto: of what only Postgres has."""
        self._again = True
        self._upto = max(self._upto, upto)
        if self._follower is not None and self._reading is None:
            self._reading = asyncio.create_task(self._read(self._follower))

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self, follower: Follower) -> None:
        try:
            while self._again or follower.renew is not None:
                self._again, upto, self._upto = False, self._upto, FIRST
                try:
                    await follower.read(upto=upto)
                finally:
                    for item in follower.taken():
                        self._give(item)
            self._behind = follower.away
        except UnknownThread as gone:
            for watcher in list(self.watchers):
                watcher.end(gone)
        except ProducerError as exc:
            # The next look comes back to it.
            self._behind = True
            log.debug("events of %s can't be read: %s", self.thread_id, exc.message)
        except Exception:
            self._behind = True
            log.exception("events of %s can't be read", self.thread_id)
        finally:
            self._reading = None

    def _give(self, item: Item) -> None:
        for watcher in self.watchers:
            watcher.put(item)
