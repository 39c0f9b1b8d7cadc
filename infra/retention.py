"""Retention: finished threads lose, table by table, what has been kept for long enough.

Only threads that are done or cancelled and have no open mail are touched; days count from
their last change. The ledger stays at least as long as the mail and the checkpoints that
could replay it (infra.settings refuses anything else). Small batches, each a transaction;
infra/sql/functions/retention.sql says what goes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg
from psycopg.rows import tuple_row

from infra import metrics
from infra.errors import FleetError
from infra.settings import Settings
from infra.sql import query

#: Threads in one transaction; rows of the tables that belong to no thread.
_THREADS, _HISTORIES, _ROWS = 100, 20, 1000
_FINISHED = ("done", "cancelled")


class PruneRunning(FleetError):
    """Another process prunes at the moment."""

    code = "prune_running"


@dataclass(frozen=True, slots=True)
class Policy:
    """Days that are kept; 0 is for ever."""

    history: float
    checkpoints: float
    messages: float
    questions: float
    events: float
    effects: float
    keyed_effects: float
    threads: float
    rejected_wakeups: float

    @classmethod
    def of(cls, settings: Settings) -> Self:
        return cls(**{n: float(getattr(settings, f"keep_{n}_days")) for n in cls.__slots__})

    def passes(self) -> Iterator[tuple[str, float, float]]:
        """(what, days, floor): what is removed of threads last changed between ``floor`` (0:
        any time) and ``days`` ago; a wider pass before has taken the older ones."""
        yield "threads", self.threads, 0.0
        for what in ("messages", "effects", "questions", "events", "checkpoints"):
            yield what, getattr(self, what), self.threads
        yield "events_in_use", self.events, self.events
        gone = min((d for d in (self.threads, self.checkpoints) if d), default=0.0)
        yield "history", self.history, gone
        yield "history_in_use", self.history, self.history


@dataclass(slots=True)
class Report:
    """Rows removed by table, and the threads whose history has to stay (DeltaChannel)."""

    removed: Counter[str] = field(default_factory=Counter)
    delta_threads: list[str] = field(default_factory=list)


class Pruning:
    """One run on a connection in autocommit mode that nobody else uses meanwhile.

    dry_run: count exactly, by removing and rolling back, batch by batch.
    afresh: look at all finished threads, not only at those that came of age since last time.
    stop: asked between batches.
    """

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        policy: Policy,
        *,
        dry_run: bool = False,
        afresh: bool = False,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._conn = conn
        self._policy = policy
        self._dry_run = dry_run
        self._afresh = afresh
        self._stop = stop
        self.report = Report()

    def run(self) -> Report:
        """Remove what is due. Raises PruneRunning, psycopg.Error."""
        self._row("prune_patience")
        if not self._row("prune_lock")[0]:
            raise PruneRunning(
                "Retention is at work already, in a worker or another `fleet prune`.",
                "Wait for it to end.",
            )
        try:
            for what, days, floor in self._policy.passes():
                if days and (not floor or days < floor or what.endswith("_in_use")):
                    for status in _FINISHED:
                        self._threads(what, status, days, floor)
            self._keyed_effects()
            self._rejected_wakeups()
            return self.report
        finally:
            if not self._conn.closed:
                self._row("prune_unlock")

    def _threads(self, what: str, status: str, days: float, floor: float) -> None:
        place = {"what": what, "status": status, "afresh": self._afresh, "floor": floor}
        at, thread = self._row("prune_place", place)
        limit = _HISTORIES if what.startswith("history") else _THREADS
        while not self._stop():
            with self._conn.transaction(force_rollback=self._dry_run):
                seen, removed, delta, next_at, next_thread = self._row(
                    "prune_threads",
                    {
                        "what": what,
                        "status": status,
                        "days": days,
                        "at": at,
                        "thread": thread,
                        "limit": limit,
                    },
                )
                if not seen:
                    return
                at, thread = next_at, next_thread
                reached = {"what": what, "status": status, "at": at, "thread": thread}
                self._row("prune_reached", reached)
            self._count(removed)
            self.report.delta_threads += delta

    def _keyed_effects(self) -> None:
        days, key = self._policy.keyed_effects, ""
        while days and not self._stop():
            with self._conn.transaction(force_rollback=self._dry_run):
                args = {"days": days, "key": key, "limit": _ROWS}
                seen, removed, key = self._row("prune_keyed_effects", args)
            self._count({"keyed_effects": removed})
            if not seen:
                return

    def _rejected_wakeups(self) -> None:
        days = self._policy.rejected_wakeups
        while days and not self._stop():
            # Rolled back they would be found again: all at once.
            limit = None if self._dry_run else _ROWS
            with self._conn.transaction(force_rollback=self._dry_run):
                args = {"days": days, "limit": limit}
                removed = self._conn.execute(query("prune_rejected_wakeups"), args).rowcount
            self._count({"rejected_wakeups": removed})
            if self._dry_run or not removed:
                return

    def _count(self, removed: dict[str, int]) -> None:
        self.report.removed.update(removed)
        if not self._dry_run:
            for table, rows in removed.items():
                metrics.pruned(table, rows)

    def _row(self, name: str, args: dict[str, Any] | None = None) -> Any:
        with self._conn.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(query(name), args)
            return cursor.fetchone() if cursor.description else None
