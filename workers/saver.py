"""The write-behind saver: LangGraph's PostgresSaver, with its writes held back to barriers.

``put`` and ``put_writes`` go into the claim's buffer; reads are served from it where it
holds the newest checkpoint of a namespace, else it is flushed and Postgres answers. One
saver lives for one turn and refuses once its claim is closed.
"""

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_serializable_checkpoint_metadata,
)
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.runtime import RunControl

from workers import shutdown
from workers.buffer import Typed, Write
from workers.claim import Claim

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


def inline(value: Any) -> bool:
    """Whether the checkpoint's JSON can hold the value as it is (else it goes to the blobs)."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return "\x00" not in value and not any("\ud800" <= c <= "\udfff" for c in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) <= _LARGEST_INLINE


class FleetSaver(PostgresSaver):
    """The checkpointer of one turn; ``control`` is drained when the turn is to stop early."""

    def __init__(self, claim: Claim, serde: SerializerProtocol, control: RunControl) -> None:
        # Not PostgresSaver's constructor: it is made for each turn, and looks at its
        # arguments at some length.
        self.serde = serde
        self.conn = claim.conn
        self.pipe = None
        self.lock = claim.lock  # type: ignore[assignment]
        self.supports_pipeline = False
        self.claim = claim
        self.control = control
        self.heads: dict[str, Head | None] = {"": _claimed_head(claim)}

    # Writes

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        conf = config["configurable"]
        ns: str = conf["checkpoint_ns"]
        parent: str | None = conf.get("checkpoint_id")
        stored = dict(checkpoint)
        values: dict[str, Any] = {}
        large: dict[str, Any] = {}
        for channel, value in checkpoint["channel_values"].items():
            if isinstance(value, _DeltaSnapshot):
                large[channel], values[channel] = value, True
            elif inline(value):
                values[channel] = value
            else:
                large[channel] = value
        stored["channel_values"] = values
        new = {c: self._dump(c, large[c]) for c in new_versions if c in large}
        meta = dict(get_serializable_checkpoint_metadata(config, metadata))
        with self.claim.lock:
            self._require(conf["thread_id"])
            buffer = self.claim.buffer
            for channel, typed in new.items():
                buffer.blobs[ns, channel, str(new_versions[channel])] = typed
            buffer.checkpoints[ns, checkpoint["id"]] = (parent, stored, meta)
            buffer.touch()
            self._advance(ns, checkpoint["id"], parent, stored, meta, set(large), new)
        if shutdown.requested() or self.claim.stop_requested:
            self.control.request_drain()
        return {
            "configurable": {
                "thread_id": conf["thread_id"],
                "checkpoint_ns": ns,
                "checkpoint_id": checkpoint["id"],
            }
        }

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        conf = config["configurable"]
        ns: str = conf["checkpoint_ns"]
        checkpoint_id: str = conf["checkpoint_id"]
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        rows = [
            (
                WRITES_IDX_MAP.get(channel, idx),
                Write(task_path, channel, self._dump(channel, value), replaces),
            )
            for idx, (channel, value) in enumerate(writes)
        ]
        with self.claim.lock:
            self._require(conf["thread_id"])
            head = self.heads.get(ns)
            for idx, write in rows:
                self.claim.buffer.add_write((ns, checkpoint_id, task_id, idx), write)
                if head is None or head.checkpoint_id != checkpoint_id:
                    continue
                if replaces or (task_id, idx) not in head.writes:
                    head.writes[task_id, idx] = write

    def _dump(self, channel: str, value: Any) -> Typed:
        """Serialize, or poison the claim: what runs after an unsaved step could run twice."""
        try:
            return self.serde.dumps_typed(value)
        except Exception as exc:
            self.claim.poison(TypeError(f"{channel}: {exc}"))
            raise

    def _advance(
        self,
        ns: str,
        checkpoint_id: str,
        parent: str | None,
        stored: dict[str, Any],
        metadata: dict[str, Any],
        large: set[str],
        new: dict[str, Typed],
    ) -> None:
        """Remember the new newest checkpoint, or forget the namespace if a blob is not known."""
        before = self.heads.get(ns)
        versions = stored["channel_versions"]
        blobs: dict[str, tuple[str, Typed]] = {}
        for channel in large:
            if channel in new:
                blobs[channel] = (versions[channel], new[channel])
            elif before and before.blobs.get(channel, ("",))[0] == versions.get(channel):
                blobs[channel] = before.blobs[channel]
            else:
                self.heads.pop(ns, None)
                return
        self.heads[ns] = Head(checkpoint_id, parent, stored, metadata, blobs, {})

    def _require(self, thread_id: str) -> None:
        self.claim.require_open()
        if thread_id != self.claim.claimed.checkpoint_thread:
            raise ValueError(
                f"the claim on {self.claim.claimed.checkpoint_thread!r} cannot write thread "
                f"{thread_id!r}: give a graph with a thread of its own a checkpointer of its own"
            )

    # Reads

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        conf = config["configurable"]
        ns = conf.get("checkpoint_ns", "")
        wanted = conf.get("checkpoint_id")
        with self.claim.lock:
            self.claim.require_open()
            if conf["thread_id"] == self.claim.claimed.checkpoint_thread and ns in self.heads:
                head = self.heads[ns]
                if head is None and not wanted:
                    return None
                if head is not None and wanted in (None, "", head.checkpoint_id):
                    return self._load_checkpoint_tuple(head.row(conf["thread_id"], ns))
            self.claim.flush()
            return super().get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        with self.claim.lock:
            self.claim.flush()
            yield from [*super().list(config, filter=filter, before=before, limit=limit)]

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        with self.claim.lock:
            self.claim.flush()
            return super().get_delta_channel_history(config=config, channels=channels)

    def interrupted(self) -> bool:
        """Whether the newest root checkpoint has interrupts among its pending writes."""
        head = self.heads.get("")
        return head is not None and any(idx == _INTERRUPT for _, idx in head.writes)

    def asking(self) -> set[str]:
        """Ids of the open interrupts of the newest root checkpoint."""
        head = self.heads.get("")
        if head is None:
            return set()
        finished = self.finished_tasks()
        asked: set[str] = set()
        for (task, idx), write in head.writes.items():
            if idx == _INTERRUPT and task not in finished:
                value = self.serde.loads_typed(write.value)  # type: ignore[arg-type]
                asked.update(i.id for i in (value if isinstance(value, Sequence) else [value]))
        return asked

    def finished_tasks(self) -> set[str]:
        """Ids of the newest root checkpoint's tasks that have an output write."""
        head = self.heads.get("")
        return (
            {t for (t, _), w in head.writes.items() if w.channel not in _CONTROL} if head else set()
        )

    # The async methods do the same inline: what they await is one short round trip.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.get_tuple(config)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.get_delta_channel_history(config=config, channels=channels)


def _claimed_head(claim: Claim) -> Head | None:
    """The root graph's latest checkpoint, which the claim brought along."""
    c = claim.claimed
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
