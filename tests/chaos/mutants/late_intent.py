"""The intent of a call is committed after the call, together with its result."""

from graphs.ledger import Intent, Recorded, Result
from tests.chaos.mutants.whole import app
from workers.claim import Claim

_real_intend, _real_note = Claim.intend, Claim.note
_late: dict[str, Intent] = {}


def _intend(self: Claim, intent: Intent) -> Recorded:
    sql = "SELECT FROM fleet.effects WHERE thread_id = %s AND request_id = %s"
    if self.conn.execute(sql, [self.thread_id, intent.request_id]).fetchone() is not None:
        return _real_intend(self, intent)
    _late[intent.request_id] = intent
    return Recorded("new", 1, intent.args_hash, None, None, 0.0, 0.0)


def _note(self: Claim, result: Result) -> None:
    if (intent := _late.pop(result.request_id, None)) is not None:
        _real_intend(self, intent)
    _real_note(self, result)


Claim.intend = _intend  # type: ignore[method-assign]
Claim.note = _note  # type: ignore[method-assign]

__all__ = ["app"]
