"""Live events of threads, for doors that stay open: read from the broker and Postgres.

`Hub` is the way in; docs/events.md says what events there are.
"""

from .events import Event, Lagging
from .hub import Hub
from .ids import EventId, InvalidEventId
from .snapshot import Snapshot

__all__ = ["Event", "EventId", "Hub", "InvalidEventId", "Lagging", "Snapshot"]
