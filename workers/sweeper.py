"""The sweeper: one thread in each worker's parent process, one leader among them.

The leader finds turns whose worker is gone, mail that nobody was woken for, and turns
that hang. It writes no thread that somebody else may write: it publishes wake-ups (and
ends hung backends), so a wrong guess costs a look, never a guarantee. Threads that were
cancelled it calls off under their own lock. Each sweeper, leader or not, looks whether
`fleet drain` was asked of its worker.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
import redis

from infra import metrics
from infra.errors import FleetError
from infra.failpoints import failpoint
from infra.migrate import newest
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query
from producers.wakeup import NO_LIMIT, Wake, broker, push
from workers.calls import Calls
from workers.expiry import STORE_SWEEP
from workers.pruner import Pruner

log = logging.getLogger("fleet.sweeper")

#: A leader that has said nothing for this long is replaced.
_STALE_LEADER = 5.0
_HEARTBEAT = 10.0
#: Mail accepted while its graph was being paused or resumed lies wrong for so long at most.
_SORTED_EVERY = 2.0
#: Seconds between the two looks at an orphan; an end's commit takes less.
_SECOND_LOOK = 0.02
#: How long a job waits for a row that somebody's open transaction holds. A turn's commit
#: takes less; a producer may keep its transaction open for as long as it likes.
_LOCK_TIMEOUT = "500ms"


class Sweeper(threading.Thread):
    """Leader or candidate; :meth:`kick` makes it look for orphans at once in either role."""

    def __init__(
        self,
        settings: Settings,
        worker: str,
        queues: list[str],
        slots: int,
        pool: str,
        hold: Callable[[bool], None] = lambda _: None,
        store_sweep: float = STORE_SWEEP,
    ) -> None:
        super().__init__(name="fleet-sweeper", daemon=True)
        self._settings = settings
        self._me = {
            "worker": worker,
            "queues": queues,
            "slots": slots,
            "wakeups": slots * settings.wakeups_per_slot,
            "pool": pool,
            "draining": False,
            "schema": newest(),
        }
        self._pruner = Pruner(settings, store_sweep)
        self._broker = broker(settings.require_redis())
        self._conn: psycopg.Connection[Any] | None = None
        self._leads = False
        self._round_at = time.monotonic()
        self._kicked = threading.Event()
        self._stop_requested = threading.Event()
        # Nobody comes upon one by himself, as a busy slot does upon mail that is due.
        self._orphans = Calls(1.0, longest=5.0)
        self._overdue = Calls(settings.redelivery_after)
        self._due = Calls(settings.redelivery_after)
        self._uncancelled = Calls(settings.redelivery_after)
        self._beat = 0.0
        self._hold = hold
        self._held = False
        self._leaving = False
        #: What is left to be done once.
        self._afresh = ["begin_afresh", "look_again"]
        self._sorted = 0.0

    # What the rest of the worker calls

    def kick(self) -> None:
        """A child was lost: look for its turn now."""
        self._kicked.set()

    def draining(self) -> None:
        """Say in the workers' table that this one stops."""
        self._leaving = True
        self._me["draining"] = True
        self._beat = 0.0
        self._kicked.set()

    def leads(self) -> bool:
        """Whether this one is the leader at the moment."""
        return self._leads

    def round_at(self) -> float:
        """When its last round began, of time.monotonic()."""
        return self._round_at

    def stop(self) -> None:
        """Give up the lead and say goodbye; returns when that is done (at most 2 s)."""
        self._stop_requested.set()
        self._pruner.stop()
        self._kicked.set()
        self.join(2)

    # The thread

    def run(self) -> None:
        while not self._stop_requested.is_set():
            try:
                self._round()
            except redis.RedisError as exc:
                # The lead is kept: another sweeper would find the same broker.
                log.warning("nobody can be woken, the broker is not reachable: %s", exc)
                self._stop_requested.wait(self._settings.sweep_interval)
            except Exception as exc:
                expected = isinstance(exc, psycopg.Error | FleetError)
                log.warning("sweep failed: %s", str(exc).strip(), exc_info=not expected)
                self._drop()
                self._stop_requested.wait(self._settings.sweep_interval)
        with contextlib.suppress(Exception):
            self._run("goodbye", self._me)
        self._drop()

    def _round(self) -> None:
        self._round_at = time.monotonic()
        conn = self._connection()
        if time.monotonic() - self._beat > _HEARTBEAT:
            self._afresh = [name for name in self._afresh if self._job(name, self._me) is None]
            self._job("heartbeat", self._me)
            self._beat = time.monotonic()
        self._obey()
        if not self._leads:
            self._leads = bool(self._run("lead")[0][0])
            if self._leads:
                conn.execute("LISTEN fleet_mail")
                log.info("this worker leads the sweep")
                failpoint("sweep.elected", lambda: str(self._me["worker"]))
            elif self._kicked.is_set():
                self._kicked.clear()
                self.wake_orphans(f"{self._me['worker']}:")
            else:
                self._watch_leader()
        if self._leads:
            self._kicked.clear()
            self.tick()
            self._pruner.tick()
            self._listen(conn)
        else:
            self._kicked.wait(self._settings.election_interval)

    def _obey(self) -> None:
        """Do as `fleet drain` has asked of this worker."""
        asked = any(row[0] for row in self._run("drain_requested", self._me))
        if asked != self._held:
            log.info("this worker takes %s", "no more turns" if asked else "turns again")
            self._hold(asked)
            self._held = asked
            self._me["draining"] = asked or self._leaving
            self._job("heartbeat", self._me)

    def tick(self) -> dict[str, int]:
        """One sweep: counts of what was found. What may have to wait comes last."""
        found = {
            "orphans": self.wake_orphans(),
            "overdue": self._wake(
                "overdue",
                self._run("overdue", {"after": self._settings.redelivery_after}),
                self._overdue,
            ),
            "due": self._wake("due", self._run("due_now"), self._due),
            "stuck": len(self._run("stuck", {"after": self._settings.turn_timeout})),
            "cancelled": self._settle_cancelled(),
            "expired": sum(n for (n,) in self._job("expire_questions") or []),
        }
        if time.monotonic() - self._sorted > _SORTED_EVERY:
            self._job("sort_paused_mail")
            self._sorted = time.monotonic()
        metrics.tick(found["stuck"])
        return found

    def wake_orphans(self, owner: str = "") -> int:
        """Wake somebody for each claimed message whose lock nobody holds; ``owner``: of those
        whose name begins so. The others are the leader's, or each would be woken for twice."""
        mine = {"owner": owner}
        found = self._run("orphans", mine)
        if found:
            # A turn that is just ending has unlocked and not committed yet: look twice.
            time.sleep(_SECOND_LOOK)
            found = [row for row in self._run("orphans", mine) if row in found]
        now = time.monotonic()
        # By claim: a thread that loses its next worker too is woken at once again.
        claims = {f"{thread} {epoch}": (thread, queue) for thread, queue, epoch in found}
        if not owner:
            self._orphans.keep({*claims})
        limits = self._limits(queue for _, queue in claims.values()) if claims else {}
        for claim, (thread_id, queue) in claims.items():
            # Again up to twice what the queue should hold: the first one may be lost although
            # the queue is full, as under load it always is, or still lie in it.
            limit = 2 * limits[queue] if claim in self._orphans.due else NO_LIMIT
            # Begun work first: each wake-up that waits already stands for many turns.
            wake = Wake(queue, thread_id, limit, first=True)
            if self._orphans.allowed(claim, now) and self._push(wake):
                self._orphans.note(claim, now)
                metrics.woken("orphan")
                log.warning("thread %s lost its worker: woken", thread_id)
        return len(found)

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
        return dict(self._run("wake_limits", {"queues": [*set(queues)]}))

    def _push(self, wake: Wake) -> int:
        """Publish one wake-up; how many were taken."""
        failpoint("sweep.before_wake", lambda: wake.thread_id)
        taken = push(self._broker, [wake])
        failpoint("sweep.after_wake", lambda: wake.thread_id)
        return taken

    def _settle_cancelled(self) -> int:
        """Call off what was cancelled between two turns; how many threads."""
        now, settled = time.monotonic(), 0
        found = {thread_id for (thread_id,) in self._run("to_be_cancelled")}
        self._uncancelled.keep(found)
        for thread_id in found:
            if not self._uncancelled.allowed(thread_id, now):
                continue
            outcome = self._job("settle_cancel", {"thread_id": thread_id})
            if outcome is None:
                self._uncancelled.note(thread_id, now)
            settled += outcome == [("cancelled",)]
        return settled

    def _listen(self, conn: psycopg.Connection[Any]) -> None:
        """Wait for the next tick, or for mail accepted inside a producer's own transaction."""
        deadline = time.monotonic() + self._settings.sweep_interval
        while (left := deadline - time.monotonic()) > 0 and not self._kicked.is_set():
            threads = {n.payload for n in conn.notifies(timeout=min(left, 0.05), stop_after=1)}
            for thread_id in threads:
                for queue in self._run("queue_of", {"thread_id": thread_id}):
                    self._push(Wake(queue[0], thread_id, NO_LIMIT))
                    metrics.woken("mail")

    def _watch_leader(self) -> None:
        for pid, silent in self._run("leader"):
            if silent > _STALE_LEADER:
                log.warning("the sweep's leader has been silent for %.1f s: replaced", silent)
                self._run("terminate", {"pid": pid})

    # The connection

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed:
            self._leads = False
            self._conn = connect(
                self._settings.require_postgres(), f"fleet-sweeper {self._me['worker']}"[:63]
            )
            patience = {"name": "lock_timeout", "value": _LOCK_TIMEOUT}
            self._conn.execute(query("set_for_session"), patience)
        return self._conn

    def _job(self, name: str, args: dict[str, Any] | None = None) -> list[Any] | None:
        """As _run; None when a row it needs stays locked: left to another tick."""
        try:
            return self._run(name, args)
        except psycopg.errors.LockNotAvailable:
            log.warning("%s was skipped: an open transaction holds a row that it needs", name)
            return None

    def _run(self, name: str, args: dict[str, Any] | None = None) -> list[Any]:
        cursor = self._connection().execute(query(name), args)
        return cursor.fetchall() if cursor.description else []

    def _drop(self) -> None:
        self._leads = False
        if self._conn is not None:
            self._conn.close()
            self._conn = None
