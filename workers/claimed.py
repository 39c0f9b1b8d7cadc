"""The SQL calls of a turn (infra/sql/functions), each one round trip, and what they give."""

from dataclasses import dataclass
from typing import Any, LiteralString

from producers.messages import checkpoint_thread_id
from workers.session import Call, Session

# Columns by name and in the order of the fields below: newer releases may add others.
_CLAIMED: LiteralString = """
    SELECT result, thread_id, tenant, graph, key, generation, epoch, fingerprint,
        checkpoint_clock, seq, message_id, kind, payload, crashes, failures, failing_for,
        checkpoint, checkpoint_id, parent_checkpoint_id, metadata, channel_values, pending_writes,
        fleet.earlier(), extract(epoch FROM fleet.now())::float8
    FROM """


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row of ``fleet.claimed``; the fields after ``result`` are null unless it is 'claimed'."""

    result: str
    thread_id: str
    tenant: str
    graph: str
    key: str
    generation: int
    epoch: int
    fingerprint: dict[str, Any] | None
    checkpoint_clock: str | None
    seq: int
    message_id: str
    kind: str
    payload: dict[str, Any]
    crashes: int
    failures: int
    failing_for: float | None
    checkpoint: dict[str, Any] | None
    checkpoint_id: str | None
    parent_checkpoint_id: str | None
    metadata: dict[str, Any] | None
    channel_values: list[list[bytes]] | None
    pending_writes: list[list[bytes]] | None
    #: {"attempt", "received"} where the message has been claimed before (fleet.tell_earlier).
    earlier: dict[str, Any] | None
    #: The database's time, in seconds.
    clock: float

    @property
    def attempt(self) -> int:
        """Claims of this message so far, this one included; more or less, once retried."""
        return int(self.earlier["attempt"]) if self.earlier else 1

    @property
    def received(self) -> bool:
        """Whether an earlier claim has told, durably, that the message came."""
        return bool(self.earlier and self.earlier["received"])

    @property
    def checkpoint_thread(self) -> str:
        """LangGraph's thread_id."""
        return checkpoint_thread_id(self.thread_id, self.generation)

    def place(self) -> str:
        """Where a failpoint is met: the message."""
        return f"{self.thread_id}/{self.seq}"


@dataclass(frozen=True, slots=True)
class Reply:
    """A row of ``fleet.recorded``: what a barrier says."""

    stop: bool
    state: str | None
    attempts: int | None
    args_hash: str | None
    result_type: str | None
    result: bytes | None
    error: dict[str, Any] | None
    age: float | None
    first_age: float | None


_CLAIM = Call("claim", Claimed, _CLAIMED + "fleet.claim($1, $2, $3)", ["text", "text", "int4"])
_CLAIM_NEXT = Call(
    "claim_next",
    Claimed,
    _CLAIMED + "fleet.claim_next($1, $2, $3, $4)",
    ["text", "text", "text", "int4"],
)
#: fleet.finish (infra/sql/functions/finish.sql).
FINISH = Call(
    "finish",
    Claimed,
    _CLAIMED + "fleet.finish($1, $2, $3, $4, $5, $6, $7, $8)",
    ["text", "text", "int8", "int4", "jsonb", "bytea", "jsonb", "jsonb"],
)
#: fleet.barrier (infra/sql/functions/barrier.sql).
BARRIER = Call(
    "barrier",
    Reply,
    """SELECT stop, state, attempts, args_hash, result_type, result, error, age, first_age
    FROM fleet.barrier($1, $2, $3, $4, $5, $6, $7, $8)""",
    ["text", "text", "int8", "int4", "int8", "jsonb", "bytea", "jsonb"],
)


def claim(session: Session, thread_id: str, owner: str, max_crashes: int) -> Claimed:
    """Claim the thread by name, or say why not in ``result``."""
    return session.call(_CLAIM, (thread_id, owner, max_crashes))


def claim_next(session: Session, queue: str, tenant: str, owner: str, max_crashes: int) -> Claimed:
    """Claim the next due mail of the queue, a tenant after ``tenant`` first."""
    return session.call(_CLAIM_NEXT, (queue, tenant, owner, max_crashes))
