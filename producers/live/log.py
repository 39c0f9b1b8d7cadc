"""The log of a thread's events: the stream and Postgres read together."""

import asyncio
import time
from dataclasses import dataclass

from .durable import Durable
from .events import Event
from .ids import EventId
from .merge import merge
from .streams import BrokerAway, Streams

_POLL = 0.02


@dataclass(frozen=True, slots=True)
class Reading:
    """Events in order. hole: something before one of them is not known.

    early: the last of them is durable and has not come by the stream, in the middle of a
    turn: what the stream has before it may still come, too late. alone: ids of those that
    settle their turn and have not come by the stream: what it had to say just before, for good
    or to take something back, may be lost. away: the broker could not be read.
    """

    events: list[Event]
    hole: bool
    early: bool
    alone: frozenset[EventId]
    away: bool


class Log:
    def __init__(self, streams: Streams, durable: Durable) -> None:
        self.streams = streams
        self.durable = durable

    async def read(
        self, thread_id: str, last: EventId, *, upto: EventId, wait: float = 0.0
    ) -> Reading:
        """All events after `last`.

        What Postgres has after the stream's end may be on its way there: it is left out,
        except for that up to `upto`, which is waited for, `wait` seconds, and taken. While the
        broker is away all is taken. Raises FleetUnavailable.
        """
        streamed, away = await self._streamed(thread_id, last)
        deadline = time.monotonic() + wait
        while True:
            # After the stream: once an epoch is seen there, Postgres has all of those before.
            rows = await self.durable.after(thread_id, last)
            end = streamed[-1].id if streamed else last
            missing = [row for row in rows if end < row.id <= upto]
            if away or not missing or time.monotonic() >= deadline:
                break
            await asyncio.sleep(_POLL)
            more, away = await self._streamed(thread_id, end)
            streamed += more
        end = max(end, upto)
        taken = rows if away else [row for row in rows if row.id <= end]
        merged = merge(last, streamed, taken)
        newest = merged.events[-1] if merged.events else None
        by_stream = bool(streamed) and newest is not None and newest.id <= streamed[-1].id
        early = newest is not None and not by_stream and not newest.settles
        known = {event.id for event in streamed}
        alone = frozenset(e.id for e in merged.events if e.settles and e.id not in known)
        return Reading(merged.events, merged.hole, early, alone, away)

    async def arrived(self, thread_id: str, event: EventId, wait: float) -> None:
        """Once the stream has come as far as this, or after `wait` seconds. Raises BrokerAway."""
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            newest = await self.streams.newest(thread_id)
            if newest is not None and newest.id >= event:
                return
            await asyncio.sleep(_POLL)

    async def resumed(self, thread_id: str, last: EventId) -> Event | None:
        """The event `last` itself, where the stream still has it."""
        try:
            return await self.streams.at(thread_id, last)
        except BrokerAway:
            return None

    async def _streamed(self, thread_id: str, last: EventId) -> tuple[list[Event], bool]:
        try:
            return await self.streams.after(thread_id, last), False
        except BrokerAway:
            return [], True
