"""The metrics page of a worker, on FLEET_METRICS_PORT: its processes' counts added up.

The worker that leads the sweep also reads the mailbox when it is asked, so that the
fleet's own numbers are on one page only. Off unless the port is set.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from infra import metrics
from infra.errors import FleetError
from infra.leftovers import is_alive
from infra.metrics import READ
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query

log = logging.getLogger("fleet.metrics")

_PREFIX = "fleet-metrics-"

_folder: Path | None = None
_server: Any = None
_collector: "FleetCollector | None" = None


def prepare(settings: Settings) -> None:
    """Count from now on, if there is a port to show it on. Before the fork, once."""
    global _folder
    if _folder is not None:
        return
    _clear_folders_of_the_dead()
    if settings.metrics_port is None:
        return
    _folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    metrics.enable(_folder)


def serve(settings: Settings, leads: Callable[[], bool]) -> None:
    """Show them; a port that is taken costs the metrics, never the worker.

    ``leads``: whether this worker leads the sweep at the moment.
    """
    global _server, _collector
    if _folder is None or settings.metrics_port is None:
        return
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(_folder))  # type: ignore[no-untyped-call]
    _collector = FleetCollector(settings, leads)
    registry.register(_collector)
    host, port = settings.metrics_host, settings.metrics_port
    try:
        _server, _ = start_http_server(port, host, registry)
    except OSError as exc:
        log.error(
            "there is no metrics page: %s:%s can't be listened on (%s); set FLEET_METRICS_PORT "
            "to a port of this worker's own",
            host,
            port,
            exc.strerror or exc,
        )
        return
    log.info("metrics: http://%s:%s/metrics", host, port)


def close() -> None:
    """Stop showing them, and remove the files."""
    if _server is not None:
        _server.shutdown()
        _server.server_close()
    if _collector is not None:
        _collector.close()
    if _folder is not None:
        shutil.rmtree(_folder, ignore_errors=True)


class FleetCollector:
    """Gauges that are read when somebody asks, in the threads that answer."""

    def __init__(self, settings: Settings, leads: Callable[[], bool]) -> None:
        self._settings = settings
        self._leads = leads
        self._lock = threading.Lock()
        self._conn: psycopg.Connection[Any] | None = None

    def collect(self) -> Iterator[Any]:
        """The gauges of infra.metrics.READ; the mailbox's only at the leader."""
        leads = self._leads()
        yield _gauge("fleet_sweeper_leader", [((), float(leads))])
        if not leads:
            return
        with self._lock:
            try:
                depth, threads = self._run("mailbox_depth"), self._run("threads_open")
                sessions = self._run("sessions_by_state")
            except (psycopg.Error, FleetError) as exc:
                log.warning("the mailbox's metrics can't be read: %s", str(exc).strip())
                self._drop()
                return
        yield _gauge("fleet_mailbox_pending_messages", [((q,), n) for q, n, _ in depth])
        yield _gauge("fleet_mailbox_oldest_due_age_seconds", [((q,), age) for q, _, age in depth])
        yield _gauge("fleet_threads", [((status,), n) for status, n in threads])
        yield _gauge("fleet_sessions", [((state,), n) for state, n in sessions])

    def _run(self, name: str) -> list[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._settings.require_postgres(), "fleet-metrics")
            self._conn.execute(query("short_patience"))
        return self._conn.execute(query(name)).fetchall()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def _gauge(name: str, samples: list[tuple[tuple[str, ...], float]]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    metric = READ[name]
    family = GaugeMetricFamily(name, metric.help, labels=metric.labels)
    for labels, value in samples:
        family.add_metric(labels, value)
    return family


def _clear_folders_of_the_dead() -> None:
    """What workers that were killed have left."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = left.name.removeprefix(_PREFIX).partition("-")[0]
        with contextlib.suppress(ValueError, OverflowError):
            if not is_alive(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
