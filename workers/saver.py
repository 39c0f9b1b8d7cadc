"""The write-behind saver: LangGraph's PostgresSaver, with its writes held back to barriers.

``put`` and ``put_writes`` go into the claim's buffer; reads are served from it where it
holds the newest checkpoint of a namespace, else it is flushed and Postgres answers. One
saver lives for one turn and refuses once its claim is closed.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
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
from langgraph.runtime import RunControl
from langgraph.types import PregelExecutableTask

from graphs.ledger import Ledger
from infra.failpoints import failpoint
from workers import shutdown
from workers.buffer import Typed, Write
from workers.claim import Claim
from workers.head import Head, claimed_head, parted
from workers.hearing import Hearing


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
        #: Of the turn; none while it only looks.
        self.ledger: Ledger | None = None
        self.hearing: Hearing | None = None
        self.heads: dict[str, Head | None] = {"": claimed_head(claim.claimed)}

    # Writes

    def get_next_version(self, current: Any, channel: None) -> str:
        """As PostgresSaver's, whose versions it can go on from, with a shorter chance part.

        A checkpoint names some twenty of them, which are most of its bytes.
        """
        number = int(str(current).partition(".")[0]) if current else 0
        return f"{number + 1:032}.{os.urandom(4).hex()}"

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
        values, large = parted(checkpoint["channel_values"])
        stored = {**checkpoint, "channel_values": values}
        new = {c: self._dump(c, large[c]) for c in new_versions if c in large}
        meta = dict(get_serializable_checkpoint_metadata(config, metadata))
        if self._halted():
            # What follows from an effect that was stopped must not look like progress.
            self.control.request_drain()
            return self._next(conf, ns, checkpoint["id"])
        with self.claim.lock:
            self._require(conf["thread_id"])
            buffer = self.claim.buffer
            for channel, typed in new.items():
                buffer.blobs[ns, channel, str(new_versions[channel])] = typed
            failpoint("saver.mid_put", self.claim.place)
            buffer.checkpoints[ns, checkpoint["id"]] = (parent, stored, meta)
            buffer.touch()
            self._advance(ns, checkpoint["id"], parent, stored, meta, set(large), new)
            if self.hearing is not None and not ns:
                self.hearing.saved(checkpoint, new_versions, metadata)
        if self.stopping():
            self.control.request_drain()
        return self._next(conf, ns, checkpoint["id"])

    def _next(self, conf: Mapping[str, Any], ns: str, checkpoint_id: str) -> RunnableConfig:
        return {
            "configurable": {
                "thread_id": conf["thread_id"],
                "checkpoint_ns": ns,
                "checkpoint_id": checkpoint_id,
            }
        }

    def stopping(self) -> bool:
        """Whether the turn is to end soon: its worker leaves, or its thread is cancelled."""
        return shutdown.requested() or self.claim.stop_requested

    def _halted(self) -> bool:
        """Whether an effect was stopped: a node that covers it up goes on with made-up values."""
        return self.ledger is not None and self.ledger.stopped is not None

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        if self._halted():
            return
        conf = config["configurable"]
        ns: str = conf["checkpoint_ns"]
        checkpoint_id: str = conf["checkpoint_id"]
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        if self.hearing is not None:
            self.hearing.give_ids(ns, task_path, writes)
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
            if self.hearing is not None:
                self.hearing.wrote(ns, task_id, task_path, writes)

    # What runs tell the saver that a task runs under (graphs.position)

    def begins(self, task: PregelExecutableTask) -> None:
        """A task that its step may start several times is about to run."""
        if self.hearing is not None:
            self.hearing.begins(task)

    def tried_again(self, task_id: str) -> None:
        """A task has failed, and its retry policy has it run once more."""
        if self.hearing is not None:
            self.hearing.failed(task_id)

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
        self.claim.settle()
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
                    if self.hearing is not None and not ns:
                        self.hearing.loaded(None)
                    return None
                if head is not None and wanted in (None, "", head.checkpoint_id):
                    found = self._load_checkpoint_tuple(head.row(conf["thread_id"], ns))
                    if self.hearing is not None and not ns:
                        self.hearing.loaded(found)
                    return found
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
            found = [*super().list(config, filter=filter, before=before, limit=limit)]
        # Not under the lock: who reads may stop half-way.
        yield from found

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        with self.claim.lock:
            self.claim.flush()
            return super().get_delta_channel_history(config=config, channels=channels)

    def stored(self) -> CheckpointTuple | None:
        """The root graph's newest checkpoint in Postgres. Raises ClaimLost."""
        conf = {"thread_id": self.claim.claimed.checkpoint_thread, "checkpoint_ns": ""}
        with self.claim.asking():
            return super().get_tuple({"configurable": conf})

    @property
    def root(self) -> Head | None:
        """The root graph's newest checkpoint; None before the first, or where it is not known."""
        return self.heads.get("")

    @property
    def root_is_known(self) -> bool:
        """Whether `root` tells all: it was neither read nor written otherwise."""
        return "" in self.heads

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
