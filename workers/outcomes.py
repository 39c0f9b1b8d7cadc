"""How a turn can end: a closed set, and what each end means for the mailbox.

Pure: :func:`end` turns an outcome into what ``fleet.finish`` writes; nothing here touches
a service. The three counts stay apart: clean releases are free, transient failures back
off and are given up by time, crashes are counted by the claim and taken back here.
"""

import logging
import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from infra.masking import mask_text
from producers.messages import WIRE

log = logging.getLogger("fleet.outcomes")


class Kind(StrEnum):
    """The closed set of outcomes."""

    DONE = "done"
    WAITING = "waiting"
    IN_DOUBT = "in_doubt"
    RETRY = "retry"
    RELEASED = "released"
    DEAD = "dead"
    INCOMPATIBLE = "incompatible"
    CANCELLED = "cancelled"
    DRAINED = "drained"
    REFUSED = "refused"
    LOST = "lost"


#: (status of the message, status of the thread) after each outcome that writes an end.
_STATUSES = {
    Kind.DONE: ("done", "done"),
    Kind.WAITING: ("done", "waiting"),
    Kind.IN_DOUBT: ("in_doubt", "in_doubt"),
    Kind.RETRY: ("pending", "idle"),
    Kind.RELEASED: ("pending", "idle"),
    Kind.DEAD: ("dead", "failed"),
    Kind.INCOMPATIBLE: ("pending", "incompatible"),
    Kind.CANCELLED: ("pending", "idle"),
    Kind.DRAINED: ("pending", "idle"),
    Kind.REFUSED: ("dropped", "idle"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One end of a turn.

    delay: seconds until the message is due again; None for RETRY means backoff.
    questions: rows of ``fleet.ask``. resumes: the message held up before goes on.
    crashed: a RETRY that is counted as a crash, not as a transient failure.
    """

    kind: Kind
    error: str | None = None
    delay: float | None = None
    questions: tuple[dict[str, Any], ...] = ()
    fingerprint: dict[str, Any] | None = None
    resumes: bool = False
    thread: str | None = None
    crashed: bool = False


def backoff(failures: int, base: float, ceiling: float, rng: random.Random) -> float:
    """Full jitter: uniform between 0 and min(ceiling, base * 2**failures), in seconds."""
    return rng.uniform(0, min(ceiling, base * 2 ** min(failures, 32)))


def give_up(outcome: Outcome, failing_for: float | None, after: float) -> Outcome:
    """A transient failure that has lasted ``after`` seconds is dead."""
    if (
        outcome.kind is not Kind.RETRY
        or outcome.crashed
        or failing_for is None
        or failing_for < after
    ):
        return outcome
    return Outcome(
        Kind.DEAD,
        error=f"given up after {failing_for / 3600:.1f} h of failures; last: {outcome.error}",
    )


def too_new(kind: str, delay: float) -> Outcome:
    """Mail of a newer release: left as it is to workers that know it."""
    reason = (
        f"mail of kind {kind!r} is newer than this worker (wire version {WIRE}): left to newer ones"
    )
    log.warning(reason)
    return Outcome(Kind.RELEASED, reason, delay=delay)


def end(outcome: Outcome, seq: int, delay: float) -> dict[str, Any]:
    """What ``fleet.finish`` is to write for message ``seq``, due again after ``delay`` seconds."""
    message, thread = _STATUSES[outcome.kind]
    written: dict[str, Any] = {
        "seq": seq,
        "message": message,
        "thread": thread,
        "error": outcome.error and mask_text(outcome.error),
        "delay": delay,
        "failed": outcome.kind is Kind.RETRY and not outcome.crashed,
    }
    if outcome.crashed:
        written["crashed"] = True
    if outcome.kind in (Kind.DONE, Kind.WAITING):
        written["questions"] = list(outcome.questions)
    if outcome.fingerprint is not None:
        written["fingerprint"] = outcome.fingerprint
    if outcome.resumes:
        written["resumes"] = True
        written["thread"] = "idle"
    if outcome.thread is not None:
        written["thread"] = outcome.thread
    return written
