"""Threads that this process has left to workers of another release.

While a deploy is under way, mail that this release can't serve comes due again and again,
and the broker gives its wake-up to whom it likes. So a process remembers what it has left:
the next wake-up for it is handed on to another worker once before it looks again, and it
looks at growing intervals, which begin anew when a worker starts: that may be the one.
"""

import math
import threading
from collections import OrderedDict

from infra.settings import Settings
from infra.sql import query
from workers.claim import Claim

#: Threads that a process remembers.
_MOST = 10_000


class Leftovers:
    """Of one process. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: How often each was left, and whether its wake-up is to be handed on.
        self._known: OrderedDict[str, tuple[int, bool]] = OrderedDict()

    def leave(self, thread_id: str, settings: Settings, newest: float = math.inf) -> float:
        """Remember that the thread was left; seconds until its mail is due again.

        newest: how many seconds ago the newest worker started; none waits for longer.
        """
        with self._lock:
            times, _ = self._known.pop(thread_id, (0, False))
            self._known[thread_id] = (times + 1, True)
            if len(self._known) > _MOST:
                self._known.popitem(last=False)
        first = settings.redelivery_after
        return min(settings.backoff_max, first * 2.0 ** min(times, 32), max(first, newest))

    def hand_on(self, thread_id: str) -> bool:
        """Whether to give this wake-up to another worker: once for each time it was left."""
        with self._lock:
            times, due = self._known.get(thread_id, (0, False))
            if due:
                self._known[thread_id] = (times, False)
            return due


def newest_worker(claim: Claim) -> float:
    """Seconds since the newest of the living workers started; none counts as for ever."""
    with claim.lock:
        row = claim.conn.execute(query("newest_worker")).fetchone()
    return math.inf if row is None or row[0] is None else float(row[0])


#: Those of this process.
leftovers = Leftovers()
