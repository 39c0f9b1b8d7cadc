"""One order of a thread's events, from what the stream and Postgres have of them.

Pure. Postgres lacks deltas, and what no commit has followed yet; the stream lacks what a
crash or an outage of the broker kept from it. The stream comes in batches, each of which
names the event before it: what is missing between two of them is taken from Postgres where
all of it is there, else the order can't be made whole and there is a hole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .events import Event
from .ids import EventId


@dataclass(frozen=True, slots=True)
class Merged:
    """`events` rise in id; `hole`: something before one of them is not known."""

    events: list[Event]
    hole: bool


def merge(last: EventId, streamed: Sequence[Event], rows: Sequence[Event]) -> Merged:
    """The events after `last`; streamed: whole batches, in order."""
    known = {e.id: e for e in rows if e.id > last}
    durable = set(known)
    hole = False
    before = last
    for event in streamed:
        # What the stream has is there at once; a row of the same id is the same event.
        if event.id > last:
            if not (event.short and event.id in durable):
                known[event.id] = event
            hole = hole or _missing(before, event, durable)
        before = max(before, event.id)
    return Merged([known[key] for key in sorted(known)], hole)


def _missing(before: EventId, event: Event, durable: set[EventId]) -> bool:
    """Whether something between two neighbours in the stream is neither there nor durable."""
    after = event.after
    if after is None or after <= before or after.epoch != event.id.epoch:
        return False
    first = before.n + 1 if before.epoch == after.epoch else 0
    return any(EventId(after.epoch, n) not in durable for n in range(first, after.n + 1))
