"""Events as readers get them, and what becomes of a reader that is too slow.

A `message` event holds the whole text of a message: it stands in place of whatever deltas
of it have come.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from .ids import EventId

#: Never in Postgres.
PASSING = frozenset({"turn", "token"})
#: Outcomes after which the same message is taken up again.
_GOES_ON = frozenset({"retry", "released", "drained", "lost"})


@dataclass(frozen=True, slots=True)
class Event:
    """`data` is shared by all who watch the thread, so nobody changes it.

    after: of a batch's first event, the one before it in the same claim; else None. short:
    Postgres has more of it.
    """

    id: EventId
    type: str
    at: str
    data: Mapping[str, Any]
    after: EventId | None = None
    short: bool = False

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"id": str(self.id), "type": self.type, "at": self.at, "data": self.data}

    @property
    def again(self) -> bool:
        """Whether it begins a turn that an earlier claim had begun and did not end."""
        return self.type == "turn" and self.data.get("attempt", 1) > 1

    @property
    def anew(self) -> bool:
        """Whether it begins a generation in which nothing of what was before is left."""
        data = self.data
        return self.type == "turn" and data.get("kind") == "start" and "generation" in data

    @property
    def texts(self) -> set[str]:
        """Of a `message`: ids under which deltas of it may have come."""
        names = (self.data.get(n) for n in ("message_id", "streamed_as", "removed"))
        return {name for name in names if name is not None}

    @property
    def settles(self) -> bool:
        """Whether all that is worth keeping of what came before it is durable by now."""
        if self.type == "ended":
            return self.data.get("outcome") not in _GOES_ON
        return self.type == "status"


@dataclass(frozen=True, slots=True)
class Lagging:
    """The reader was too slow, and its watch has ended; it comes back with its last id."""

    last: EventId | None


def batch(text: bytes | str) -> list[Event]:
    """The events of an entry, in order. Raises ValueError for what is none."""
    found = orjson.loads(text)
    if not isinstance(found, list):
        raise ValueError("no list of events")
    try:
        return [_event(one) for one in found]
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"no batch of events: {exc!r}") from None


def _event(found: Mapping[str, Any]) -> Event:
    after = found.get("after")
    return Event(
        _id(found["id"]),
        str(found["type"]),
        str(found.get("at", "")),
        found["data"],
        None if after is None else _id(after),
        bool(found.get("short")),
    )


def _id(text: str) -> EventId:
    # A writer's own: not checked as a client's is.
    epoch, _, n = text.partition("-")
    return EventId(int(epoch), int(n))


def texts_begun(events: Iterable[Event]) -> dict[str, dict[str, Any]]:
    """Messages of which deltas have come and the whole has not, by id, as a Snapshot's
    `partial` has them."""
    begun: dict[str, dict[str, Any]] = {}
    for event in events:
        name = event.data.get("message_id")
        if event.type == "turn":
            begun.clear()
        elif event.type == "token" and name is not None:
            node = event.data.get("node")
            one = begun.setdefault(name, {"message_id": name, "node": node, "text": ""})
            one["text"] += event.data.get("text", "")
        elif event.type == "message":
            for name in event.texts:
                begun.pop(name, None)
    return begun
