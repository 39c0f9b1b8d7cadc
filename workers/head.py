"""The newest checkpoint of a namespace, as the tables hold it, and what can be read off it.

The saver serves reads from it; the turn reads off it what is asked and what is left to
run, without a snapshot of LangGraph's.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Interrupt

from graphs.pending import pending_nodes
from infra.sql import query
from workers.buffer import Typed, Write
from workers.claim import Claim
from workers.claimed import Claimed

#: Writes that say what happened to a task, not what it gave (langgraph.pregel._task_status).
_INTERRUPT = WRITES_IDX_MAP["__interrupt__"]
_CONTROL = frozenset({*WRITES_IDX_MAP, "__error_source_node__"})

#: Integers beyond this do not survive every JSON reader; they go to the blobs.
_LARGEST_INLINE = 2**63 - 1


@dataclass(slots=True)
class Head:
    """The newest checkpoint of a namespace, serialized as the tables hold it."""

    checkpoint_id: str
    parent_id: str | None
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    blobs: dict[str, tuple[str, Typed]]
    writes: dict[tuple[str, int], Write]

    def row(self, thread_id: str, ns: str) -> dict[str, Any]:
        """As PostgresSaver's SELECT gives it; what LangGraph changes in place is copied."""
        checkpoint = {
            **self.checkpoint,
            "channel_versions": dict(self.checkpoint["channel_versions"]),
            "versions_seen": {k: dict(v) for k, v in self.checkpoint["versions_seen"].items()},
        }
        return {
            "thread_id": thread_id,
            "checkpoint": checkpoint,
            "checkpoint_ns": ns,
            "checkpoint_id": self.checkpoint_id,
            "parent_checkpoint_id": self.parent_id,
            "metadata": dict(self.metadata),
            "channel_values": [
                (channel.encode(), kind.encode(), value)
                for channel, (_, (kind, value)) in self.blobs.items()
            ],
            "pending_writes": [
                (
                    task.encode(),
                    w.channel.encode(),
                    w.value[0].encode(),
                    w.value[1],
                    w.task_path.encode(),
                    str(idx).encode(),
                )
                for (task, idx), w in self.writes.items()
            ],
        }

    def interrupted(self) -> bool:
        """Whether any task has asked something, answered or not."""
        return any(idx == _INTERRUPT for _, idx in self.writes)

    def finished_tasks(self) -> set[str]:
        """Ids of the tasks that have an output write."""
        return {task for (task, _), w in self.writes.items() if w.channel not in _CONTROL}

    def interrupts(self, serde: SerializerProtocol) -> list[Interrupt]:
        """What unfinished tasks ask, in the order of the tasks."""
        finished = self.finished_tasks()
        waiting = [
            write
            for (task, idx), write in self.writes.items()
            if idx == _INTERRUPT and task not in finished
        ]
        found: dict[str, Interrupt] = {}
        for write in sorted(waiting, key=lambda w: w.task_path):
            value = serde.loads_typed(write.value)  # type: ignore[arg-type]
            for interrupt in value if isinstance(value, Sequence) else [value]:
                found.setdefault(interrupt.id, interrupt)
        return [*found.values()]

    def pending_nodes(self, serde: SerializerProtocol) -> set[str]:
        """Names of the nodes at which the thread stands."""
        values = self.checkpoint["channel_values"]

        def value(channel: str) -> Any:
            if channel not in self.blobs:
                return values[channel]
            return serde.loads_typed(self.blobs[channel][1])  # type: ignore[arg-type]

        return pending_nodes(values.keys() | self.blobs.keys(), value)


def inline(value: Any) -> bool:
    """Whether the checkpoint's JSON can hold the value as it is (else it goes to the blobs).

    Subclasses of these types go there too: they would come back as something else.
    """
    if value is None or type(value) is bool:
        return True
    if type(value) is str:
        return "\x00" not in value and (
            value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
        )
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is int and abs(value) <= _LARGEST_INLINE


def parted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(values that the checkpoint's row holds, values with a blob of their own)."""
    values: dict[str, Any] = {}
    large: dict[str, Any] = {}
    for channel, value in given.items():
        if isinstance(value, _DeltaSnapshot):
            large[channel], values[channel] = value, True
        elif inline(value):
            values[channel] = value
        else:
            large[channel] = value
    return values, large


def claimed_head(c: Claimed) -> Head | None:
    """The root graph's latest checkpoint, which the claim brought along."""
    if c.checkpoint_id is None or c.checkpoint is None:
        return None
    versions = c.checkpoint["channel_versions"]
    blobs: dict[str, tuple[str, Typed]] = {}
    for channel, kind, value in c.channel_values or []:
        name = bytes(channel).decode()
        blobs[name] = (versions[name], (bytes(kind).decode(), value))
    writes: dict[tuple[str, int], Write] = {}
    for task, channel, kind, value, path, idx in c.pending_writes or []:
        key = (bytes(task).decode(), int(bytes(idx)))
        typed = (bytes(kind).decode(), value)
        writes[key] = Write(bytes(path).decode(), bytes(channel).decode(), typed, False)
    return Head(
        c.checkpoint_id, c.parent_checkpoint_id, c.checkpoint, c.metadata or {}, blobs, writes
    )


def channels_below(claim: Claim, head: Head) -> dict[str, Any]:
    """Where the subgraphs under the root's newest checkpoint stand, by namespace."""
    args = {"thread_id": claim.claimed.checkpoint_thread, "after": head.checkpoint_id}
    with claim.lock:
        row = claim.conn.execute(query("channels_below"), args).fetchone()
    found: dict[str, Any] = row[0] if row else {}
    return found
