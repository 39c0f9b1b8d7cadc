"""Calling off threads that were cancelled between two turns: a job of the sweep.

Each under its thread's own lock, as a turn would have it.
"""

import time

from workers.calls import Calls
from workers.sweep_session import SweepSession


class Settling:
    """``after``: seconds until a thread whose row somebody held is tried again."""

    def __init__(self, session: SweepSession, after: float) -> None:
        self._session = session
        self.put_off = Calls(after)

    def run_once(self) -> int:
        """Call off what can be; how many threads."""
        now, settled = time.monotonic(), 0
        found = {thread_id for (thread_id,) in self._session.run("to_be_cancelled")}
        self.put_off.keep(found)
        for thread_id in found:
            if not self.put_off.allowed(thread_id, now):
                continue
            outcome = self._session.job("settle_cancel", {"thread_id": thread_id})
            if outcome is None:
                self.put_off.note(thread_id, now)
            settled += outcome == [("cancelled",)]
        return settled
