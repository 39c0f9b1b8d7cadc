"""The end of a turn is two commits: first its message, then the rest."""

from typing import Any

from tests.chaos.mutants.whole import app
from workers.claim import Claim
from workers.claimed import Claimed

_real_finish = Claim.finish


def _finish(self: Claim, end: dict[str, Any], *more: Any) -> Claimed:
    self.require_open()
    self.conn.execute(
        "UPDATE fleet.messages SET status = %s, done_at = fleet.now() "
        "WHERE thread_id = %s AND seq = %s",
        [end["message"], self.thread_id, self.message_seq],
    )
    return _real_finish(self, end, *more)


Claim.finish = _finish  # type: ignore[method-assign]

__all__ = ["app"]
