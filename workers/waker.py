"""Waking somebody for mail that nobody works on: a job of the sweep.

It publishes wake-ups and writes no thread, so a wrong guess costs a look and no guarantee.
Growing intervals and a bound per queue keep a long backlog from being queued twice.
"""

import logging
import time
from collections.abc import Iterable
from typing import Any

import redis

from infra import metrics
from infra.failpoints import failpoint
from producers.wakeup import NO_LIMIT, Wake, push
from workers.calls import Calls
from workers.sweep_session import SweepSession

log = logging.getLogger("fleet.sweeper")

#: Seconds between the two looks at an orphan; an end's commit takes less.
_SECOND_LOOK = 0.02


class Waker:
    """``after``: seconds that mail may be due before it is woken for again."""

    def __init__(self, session: SweepSession, broker: "redis.Redis", after: float) -> None:
        self._session = session
        self._broker = broker
        self._after = after
        # Nobody comes upon one by himself, as a busy slot does upon mail that is due.
        self.orphaned = Calls(1.0, longest=5.0)
        self._overdue = Calls(after)
        self._due = Calls(after)

    def wake_orphans(self, owner: str = "") -> int:
        """Wake somebody for each claimed message whose lock nobody holds; ``owner``: of those
        whose name begins so. The others are the leader's, or each would be woken for twice."""
        mine = {"owner": owner}
        found = self._session.run("orphans", mine)
        if found:
            # A turn that is just ending has unlocked and not committed yet: look twice.
            time.sleep(_SECOND_LOOK)
            found = [row for row in self._session.run("orphans", mine) if row in found]
        now = time.monotonic()
        # By claim: a thread that loses its next worker too is woken at once again.
        claims = {f"{thread} {epoch}": (thread, queue) for thread, queue, epoch in found}
        if not owner:
            self.orphaned.keep({*claims})
        limits = self._limits(queue for _, queue in claims.values()) if claims else {}
        for claim, (thread_id, queue) in claims.items():
            # Again up to twice what the queue should hold: the first one may be lost although
            # the queue is full, as under load it always is, or still lie in it.
            limit = 2 * limits[queue] if claim in self.orphaned.due else NO_LIMIT
            # Begun work first: each wake-up that waits already stands for many turns.
            wake = Wake(queue, thread_id, limit, first=True)
            if self.orphaned.allowed(claim, now) and self._push(wake):
                self.orphaned.note(claim, now)
                metrics.woken("orphan")
                log.warning("thread %s lost its worker: woken", thread_id)
        return len(found)

    def wake_overdue(self) -> int:
        """Wake for mail that has been due for a while, new or claimed by nobody yet."""
        found = self._session.run("overdue", {"after": self._after})
        return self._wake("overdue", found, self._overdue)

    def wake_due(self) -> int:
        """Wake for mail that was put off and whose time has come."""
        return self._wake("due", self._session.run("due_now"), self._due)

    def wake_for_mail(self, thread_id: str) -> None:
        """Wake for a thread that Postgres has just told of."""
        for (queue,) in self._session.run("queue_of", {"thread_id": thread_id}):
            self._push(Wake(queue, thread_id, NO_LIMIT))
            metrics.woken("mail")

    def _wake(self, reason: str, found: list[Any], calls: Calls) -> int:
        """Wake for due mail, while the queue holds fewer wake-ups than slots can use."""
        now = time.monotonic()
        calls.keep({t for t, _ in found})
        limits = self._limits(queue for _, queue in found)
        full: set[str] = set()
        for thread_id, queue in found:
            if queue in full or not calls.allowed(thread_id, now):
                continue
            if self._push(Wake(queue, thread_id, limits[queue])):
                calls.note(thread_id, now)
                metrics.woken(reason)
            else:
                full.add(queue)
        return len(found)

    def _limits(self, queues: Iterable[str]) -> dict[str, int]:
        """How many wake-ups each queue may hold."""
        return dict(self._session.run("wake_limits", {"queues": [*set(queues)]}))

    def _push(self, wake: Wake) -> int:
        """Publish one wake-up; how many were taken."""
        failpoint("sweep.before_wake", lambda: wake.thread_id)
        taken = push(self._broker, [wake])
        failpoint("sweep.after_wake", lambda: wake.thread_id)
        return taken
