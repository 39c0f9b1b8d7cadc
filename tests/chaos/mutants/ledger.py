"""Effects are called, and nobody takes down that they were."""

from graphs.ledger import Intent, Recorded, Result
from tests.chaos.mutants.whole import app
from workers.claim import Claim


def _intend(self: Claim, intent: Intent) -> Recorded:
    self.require_open()
    return Recorded("new", 1, intent.args_hash, None, None, 0.0, 0.0)


def _note(self: Claim, result: Result) -> None:
    self.require_open()


Claim.intend = _intend  # type: ignore[method-assign]
Claim.note = _note  # type: ignore[method-assign]

__all__ = ["app"]
