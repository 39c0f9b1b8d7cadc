"""The sweeper: one thread in each worker's parent process, one leader among them.

The leader finds turns whose worker is gone, mail that nobody was woken for, and turns
that hang. It writes no thread that somebody else may write: it publishes wake-ups (and
ends hung backends). Threads that were cancelled it calls off under their own lock. Each
sweeper, leader or not, looks whether `fleet drain` was asked of its worker.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import redis

from infra import metrics
from infra.errors import FleetError
from infra.failpoints import failpoint
from infra.migrate import newest
from infra.settings import Settings
from producers.wakeup import broker
from workers.expiry import STORE_SWEEP
from workers.pruner import Pruner
from workers.sessions import SessionSweep
from workers.settling import Settling
from workers.sweep_session import SweepSession
from workers.waker import Waker

log = logging.getLogger("fleet.sweeper")

#: A leader that has said nothing for this long is replaced.
_STALE_LEADER = 5.0
_HEARTBEAT = 10.0
#: Mail accepted while its graph was being paused or resumed lies wrong for so long at most.
_SORTED_EVERY = 2.0


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
        self.session = SweepSession(settings.require_postgres, f"fleet-sweeper {worker}")
        after = settings.redelivery_after
        self.waker = Waker(self.session, broker(settings.require_redis()), after)
        self.settling = Settling(self.session, after)
        self._round_at = time.monotonic()
        self._kicked = threading.Event()
        self._stop_requested = threading.Event()
        self._beat = 0.0
        self._hold = hold
        self._held = False
        self._leaving = False
        #: What is left to be done once.
        self._afresh = ["begin_afresh", "look_again"]
        self._sorted = 0.0
        self._sessions = SessionSweep(settings.session_timeout, self.session.job)

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
        return self.session.leads

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
                self.session.drop()
                self._stop_requested.wait(self._settings.sweep_interval)
        with contextlib.suppress(Exception):
            self.session.run("goodbye", self._me)
        self.session.drop()

    def _round(self) -> None:
        self._round_at = time.monotonic()
        conn = self.session.connection()
        if time.monotonic() - self._beat > _HEARTBEAT:
            self._afresh = [
                name for name in self._afresh if self.session.job(name, self._me) is None
            ]
            self.session.job("heartbeat", self._me)
            self._beat = time.monotonic()
        self._obey()
        if not self.session.leads:
            if self.session.lead():
                conn.execute("LISTEN fleet_mail")
                log.info("this worker leads the sweep")
                failpoint("sweep.elected", lambda: str(self._me["worker"]))
            elif self._kicked.is_set():
                self._kicked.clear()
                self.waker.wake_orphans(f"{self._me['worker']}:")
            else:
                self._watch_leader()
        if self.session.leads:
            self._kicked.clear()
            self.tick()
            self._pruner.tick()
            self._listen(conn)
        else:
            self._kicked.wait(self._settings.election_interval)

    def _obey(self) -> None:
        """Do as `fleet drain` has asked of this worker."""
        asked = any(row[0] for row in self.session.run("drain_requested", self._me))
        if asked != self._held:
            log.info("this worker takes %s", "no more turns" if asked else "turns again")
            self._hold(asked)
            self._held = asked
            self._me["draining"] = asked or self._leaving
            self.session.job("heartbeat", self._me)

    def tick(self) -> dict[str, int]:
        """One sweep: counts of what was found. What may have to wait comes last."""
        found = {
            "orphans": self.waker.wake_orphans(),
            "overdue": self.waker.wake_overdue(),
            "due": self.waker.wake_due(),
            "stuck": len(self.session.run("stuck", {"after": self._settings.turn_timeout})),
            "cancelled": self.settling.run_once(),
            "expired": sum(n for (n,) in self.session.job("expire_questions") or []),
        }
        if time.monotonic() - self._sorted > _SORTED_EVERY:
            self.session.job("sort_paused_mail")
            self._sorted = time.monotonic()
        self._sessions.tick()
        metrics.tick(found["stuck"])
        return found

    def _listen(self, conn: psycopg.Connection[Any]) -> None:
        """Wait for the next tick, or for mail accepted inside a producer's own transaction."""
        deadline = time.monotonic() + self._settings.sweep_interval
        while (left := deadline - time.monotonic()) > 0 and not self._kicked.is_set():
            threads = {n.payload for n in conn.notifies(timeout=min(left, 0.05), stop_after=1)}
            for thread_id in threads:
                self.waker.wake_for_mail(thread_id)

    def _watch_leader(self) -> None:
        for pid, silent in self.session.run("leader"):
            if silent > _STALE_LEADER:
                log.warning("the sweep's leader has been silent for %.1f s: replaced", silent)
                self.session.run("terminate", {"pid": pid})
