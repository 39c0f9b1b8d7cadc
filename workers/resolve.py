"""Resolve: a person has said what became of a parked effect."""

from typing import TYPE_CHECKING

from graphs.ledger import Result
from workers.outcomes import Kind, Outcome

if TYPE_CHECKING:
    from workers.turn import Turn


def run(turn: "Turn") -> Outcome:
    """Write it into the ledger; the message that was held up goes on."""
    p = turn.claimed.payload
    said = Result(p["request_id"], "forgotten", None, None, 0, None)
    if p["happened"]:
        result = turn.slot.serde.dumps_typed(p.get("result"))
        said = Result(p["request_id"], "done", result, None, 0, None)
    turn.claim.note(said)
    return Outcome(Kind.DONE, resumes=True)
