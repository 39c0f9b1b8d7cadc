"""The write buffer of a turn: checkpoint rows and effect results not committed yet.

Rows are kept in the order and shape that ``fleet.barrier`` takes (infra/sql/functions).
Values are serialized when they are put in: a node may change an object afterwards.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from graphs.ledger import Result

#: (type, bytes) as LangGraph's serializer gives them.
Typed = tuple[str, bytes | None]


@dataclass(slots=True)
class Write:
    """One row of checkpoint_writes. ``replaces``: a newer one takes an older one's place."""

    task_path: str
    channel: str
    value: Typed
    replaces: bool


@dataclass(slots=True)
class WriteBuffer:
    """What the next barrier commits. Not thread safe: the claim's lock guards it."""

    checkpoints: dict[tuple[str, str], tuple[str | None, Any, Any]] = field(default_factory=dict)
    blobs: dict[tuple[str, str, str], Typed] = field(default_factory=dict)
    writes: dict[tuple[str, str, str, int], Write] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    #: Rows of events; they go with the next barrier and are no reason for one.
    events: list[list[Any]] = field(default_factory=list)
    since: float | None = None

    def touch(self) -> None:
        """Note that something is waiting, from now on if nothing was."""
        if self.since is None:
            self.since = time.monotonic()

    def age(self) -> float:
        """Seconds since the oldest entry was put in; 0.0 when empty."""
        return 0.0 if self.since is None else time.monotonic() - self.since

    def add_write(self, key: tuple[str, str, str, int], write: Write) -> None:
        """Merge by task and index, as the table does."""
        if write.replaces or key not in self.writes:
            self.writes[key] = write
        self.touch()

    def clear(self) -> None:
        """Forget everything: it is committed, or never will be."""
        self.checkpoints.clear()
        self.blobs.clear()
        self.writes.clear()
        self.results.clear()
        self.events.clear()
        self.since = None

    def render(self) -> tuple[dict[str, Any], bytes]:
        """(rows, binary values) for the SQL functions; see barrier.sql."""
        values = _Values()
        rows: dict[str, Any] = {}
        if self.blobs:
            rows["blobs"] = [
                [ns, channel, version, kind, *values.place(value)]
                for (ns, channel, version), (kind, value) in self.blobs.items()
            ]
        if self.checkpoints:
            rows["checkpoints"] = [
                [ns, id_, parent, checkpoint, metadata]
                for (ns, id_), (parent, checkpoint, metadata) in self.checkpoints.items()
            ]
            rows["clock"] = max(id_ for _, id_ in self.checkpoints)
        for (ns, id_, task, idx), w in self.writes.items():
            kind, value = w.value
            row = [ns, id_, task, w.task_path, idx, w.channel, kind, *values.place(value)]
            rows.setdefault("replacing_writes" if w.replaces else "writes", []).append(row)
        if self.results:
            rows["results"] = [
                [
                    r.request_id,
                    r.state,
                    r.result[0] if r.result else None,
                    *values.place(r.result[1] if r.result else None),
                    r.error,
                    r.attempts,
                ]
                for r in self.results.values()
            ]
        if self.events:
            rows["events"] = self.events
        return rows, values.joined()


class _Values:
    """Binary values, one after the other."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def place(self, value: bytes | None) -> tuple[int | None, int | None]:
        """(start, length) of the value, counted from 1; nothing for None."""
        if value is None:
            return None, None
        start = self._length + 1
        self._parts.append(value)
        self._length += len(value)
        return start, len(value)

    def joined(self) -> bytes:
        return b"".join(self._parts)
