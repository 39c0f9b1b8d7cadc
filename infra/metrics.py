"""Metrics: what the fleet counts, by Prometheus's conventions, and the calls that count it.

All calls do nothing until :func:`enable` was called, which a worker does before it forks
its pool; from then on each process counts in a mapped file of its own (prometheus-client's
multiprocess mode), and the worker's parent adds them up when it is asked. No label ever
holds an id, a key or a tenant. docs/metrics.md lists every name.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_TURN = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
_BARRIER = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as Prometheus sees it: a counter's name ends in ``_total``."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


#: Counted by any process of a worker.
COUNTED = {
    metric.name: metric
    for metric in (
        Metric(
            "fleet_turn_duration_seconds",
            "histogram",
            "Duration of a turn's attempt, from its claim to its end, by how it ended.",
            ("graph", "outcome"),
            _TURN,
        ),
        Metric(
            "fleet_effects_total",
            "counter",
            "Effects by outcome: done, failed, unstorable, forgotten, replayed or in_doubt.",
            ("policy", "outcome"),
        ),
        Metric(
            "fleet_barrier_duration_seconds",
            "histogram",
            "Duration of a durable commit of the saver, by what it was for: intent, flush, end.",
            ("kind",),
            _BARRIER,
        ),
        Metric(
            "fleet_barrier_bytes_total",
            "counter",
            "Bytes of channel values, writes and results sent in barriers.",
        ),
        Metric(
            "fleet_sweeper_ticks_total",
            "counter",
            "Sweeps done as the leader.",
        ),
        Metric(
            "fleet_sweeper_wakeups_total",
            "counter",
            "Wake-ups that the sweep published: orphan (its worker was lost), overdue, due, mail.",
            ("reason",),
        ),
        Metric(
            "fleet_sweeper_stuck_turns_total",
            "counter",
            "Turns without progress whose backend was terminated.",
        ),
        Metric(
            "fleet_worker_processes_lost_total",
            "counter",
            "Processes of this worker's pool that died while they had a task.",
        ),
        Metric(
            "fleet_rejected_wakeups_total",
            "counter",
            "Messages in the queue that were no wake-ups and were set aside.",
        ),
        Metric(
            "fleet_notifications_total",
            "counter",
            "Attempts to tell a channel of a question: sent, failed, gone or given_up.",
            ("channel", "outcome"),
        ),
        Metric(
            "fleet_pruned_rows_total",
            "counter",
            "Rows that retention removed, by table.",
            ("table",),
        ),
    )
}

#: Read when the leader's worker is asked, so that the fleet's numbers are there once.
READ = {
    metric.name: metric
    for metric in (
        Metric(
            "fleet_sweeper_leader",
            "gauge",
            "1 where this worker leads the sweep, else 0.",
        ),
        Metric(
            "fleet_mailbox_pending_messages",
            "gauge",
            "Messages that wait for their turn, retries that are not due yet included.",
            ("queue",),
        ),
        Metric(
            "fleet_mailbox_oldest_due_age_seconds",
            "gauge",
            "For how long the longest waiting due message has been due; 0 when none is.",
            ("queue",),
        ),
        Metric(
            "fleet_threads",
            "gauge",
            "Threads that are not at their end, by status.",
            ("status",),
        ),
        Metric(
            "fleet_sessions",
            "gauge",
            "Sessions of chat pages on record, by state.",
            ("state",),
        ),
    )
}


class _Live:
    """The metrics of this process; made once, before the fork."""

    def __init__(self, folder: Path) -> None:
        # Which kind of value is used was decided when the library was imported, which a
        # graph's module may have done already.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
        from prometheus_client import CollectorRegistry, Counter, Histogram, values

        values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        made: dict[str, Any] = {}
        for m in COUNTED.values():
            if m.kind == "histogram":
                made[m.name] = Histogram(
                    m.name, m.help, m.labels, buckets=m.buckets, registry=registry
                )
            else:
                made[m.name] = Counter(m.name, m.help, m.labels, registry=registry)
        self.registry = registry
        self.made = made
        self._children: dict[tuple[str, ...], Any] = {}

    def child(self, name: str, *labels: str) -> Any:
        key = (name, *labels)
        found = self._children.get(key)
        if found is None:
            metric = self.made[name]
            found = self._children[key] = metric.labels(*labels) if labels else metric
        return found


_live: _Live | None = None


def enable(folder: Path) -> None:
    """Count from now on, in files in this folder; once in a process and its children."""
    global _live
    if _live is None:
        _live = _Live(folder)


def turn(graph: str, outcome: str, seconds: float) -> None:
    """An attempt at a message has ended."""
    if _live is not None:
        _live.child("fleet_turn_duration_seconds", graph, outcome).observe(seconds)


def effect(policy: str, outcome: str) -> None:
    """An effect came to a result, was given one from the ledger, or is in doubt."""
    if _live is not None:
        _live.child("fleet_effects_total", policy, outcome).inc()


def barrier(kind: str, seconds: float, size: int) -> None:
    """A barrier was committed; ``size`` in bytes."""
    if _live is not None:
        _live.child("fleet_barrier_duration_seconds", kind).observe(seconds)
        if size:
            _live.child("fleet_barrier_bytes_total").inc(size)


def tick(stuck: int) -> None:
    """The leader has swept and ended ``stuck`` hung turns."""
    if _live is not None:
        _live.child("fleet_sweeper_ticks_total").inc()
        if stuck:
            _live.child("fleet_sweeper_stuck_turns_total").inc(stuck)


def woken(reason: str) -> None:
    """The sweep published a wake-up."""
    if _live is not None:
        _live.child("fleet_sweeper_wakeups_total", reason).inc()


def process_lost() -> None:
    """A process of the pool died with a task."""
    if _live is not None:
        _live.child("fleet_worker_processes_lost_total").inc()


def notified(channel: str, outcome: str) -> None:
    """A channel was told of a question, or was not."""
    if _live is not None:
        _live.child("fleet_notifications_total", channel, outcome).inc()


def rejected() -> None:
    """A message in the queue was set aside."""
    if _live is not None:
        _live.child("fleet_rejected_wakeups_total").inc()


def pruned(table: str, rows: int) -> None:
    """Retention removed rows."""
    if _live is not None and rows:
        _live.child("fleet_pruned_rows_total", table).inc(rows)
