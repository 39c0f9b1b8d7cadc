"""What effects need of the turn that they run in: graphs says it, workers implement it.

An effect's intent is recorded before its call and its result after it; a further attempt
finds what was recorded before.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Intent:
    """An effect about to be called. ``again``: should the ledger hold this intent already,
    count one more call, started now; without it such a row is only looked at."""

    request_id: str
    name: str
    policy: str
    args_hash: str
    effect_key: str | None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """What stood in the ledger before an intent.

    state: ``new`` (the intent is recorded now), ``intent`` (begun before, no result),
    ``done``, ``failed``, ``unstorable``, or ``busy`` (another session is at this key;
    nothing was recorded). attempts: calls begun, this one included when it is new or
    ``again``. age, first_age: seconds since the previous and the first call began, by the
    database's clock.
    """

    state: Literal["new", "intent", "done", "failed", "unstorable", "busy"]
    attempts: int
    args_hash: str | None
    result: tuple[str, bytes] | None
    error: dict[str, Any] | None
    age: float
    first_age: float


@dataclass(frozen=True, slots=True)
class Result:
    """What came of an effect. ``forgotten``: it is known not to have happened, and the
    intent is to be taken back."""

    request_id: str
    state: Literal["done", "failed", "unstorable", "forgotten"]
    result: tuple[str, bytes] | None
    error: dict[str, Any] | None
    attempts: int
    effect_key: str | None


class Turn(Protocol):
    """What the worker's claim does for effects. Called from several threads at once.
    All but ``last_barrier_age`` raise control errors (graphs.control)."""

    thread_id: str
    generation: int
    tenant: str
    graph: str
    key: str
    message_seq: int

    def intend(self, intent: Intent) -> Recorded:
        """A barrier: commit all that is buffered, then the intent. May be called again for
        the same request id in one turn (a further attempt)."""
        ...

    def note(self, result: Result) -> None:
        """Buffer a result for the next barrier."""
        ...

    def flush(self) -> None:
        """Barrier now."""
        ...

    def check(self) -> None:
        """Ask Postgres whether the claim is still ours."""
        ...

    def last_barrier_age(self) -> float:
        """Seconds since Postgres last confirmed the claim."""
        ...
