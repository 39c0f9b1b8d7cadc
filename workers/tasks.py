"""The one Celery task, and the worker's life around it.

The parent process loads the registry before the fork and keeps the sweeper; a slot is made
lazily by the process or thread that serves.
"""

import contextlib
import gc
import logging
import sys
import threading
from typing import Any

import psycopg
from celery import Task, signals
from celery.exceptions import WorkerLostError
from celery.worker.request import Request

from graphs.registry import Registry
from infra.errors import FleetError
from infra.migrate import register_graphs, require_migrated
from infra.postgres import connect, refuse_transaction_pooler
from infra.settings import get_settings
from workers import shutdown
from workers.app import app
from workers.drain import drain
from workers.slot import Slot
from workers.sweeper import Sweeper

log = logging.getLogger("fleet.tasks")

_registry: Registry | None = None
_sweeper: Sweeper | None = None
_slots = threading.local()


class TurnsRequest(Request):  # type: ignore[misc]
    """Celery's request in the parent; a lost child is looked after at once."""

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        # billiard hands over most exceptions wrapped in one that carries the traceback.
        exc = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(exc, WorkerLostError) and _sweeper is not None:
            _sweeper.kick()
        return super().on_failure(exc_info, *args, **kwargs)


class TurnsTask(Task):  # type: ignore[misc]
    """The task's class: it only names the request class above."""

    Request = TurnsRequest


@app.task(name="fleet.turns", base=TurnsTask)  # type: ignore[untyped-decorator]
def turns(thread_id: str, v: int = 1) -> list[dict[str, Any]]:
    """Serve the thread that the wake-up names, then other due mail.

    Returns what was done, ``[{"thread_id", "seq", "epoch", "outcome"}]``.
    """
    try:
        return drain(_slot(), thread_id)
    except (psycopg.OperationalError, FleetError) as exc:
        # The mail is safe in Postgres; the sweeper wakes somebody when it is back.
        log.error("no turn of %s for now: %s", thread_id, str(exc).strip())
        return []


def registry() -> Registry:
    """The graphs of this worker, loaded once, before the fork."""
    global _registry
    if _registry is None:
        _registry = Registry.load(get_settings().graphs_path)
    return _registry


def _slot() -> Slot:
    slot: Slot | None = getattr(_slots, "slot", None)
    if slot is None:
        settings = get_settings()
        slot = _slots.slot = Slot(settings, registry(), settings.queue)
    return slot


def _check(**_: Any) -> None:
    """Refuse to start where the guarantees would not hold; make the graphs known."""
    try:
        url = get_settings().require_postgres()
        refuse_transaction_pooler(url)
        with contextlib.closing(connect(url, "fleet-check")) as conn:
            require_migrated(conn)
            register_graphs(conn, registry().described())
    except FleetError as exc:
        sys.exit(f"error: {exc}")


def _spare_collections() -> None:
    """What was imported lives as long as the process: no collection need look at it again.

    A turn makes many short-lived objects, each run of the collector would scan it all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def _start_sweeper(sender: Any = None, **_: Any) -> None:
    global _sweeper
    queues = [q.name for q in sender.controller.app.amqp.queues.consume_from.values()]
    pool = sender.controller.pool
    _sweeper = Sweeper(
        get_settings(),
        worker=sender.hostname,
        queues=queues,
        slots=int(sender.controller.concurrency),
        pool=type(pool).__module__.rsplit(".", 1)[-1],
    )
    _sweeper.start()


def _warm_up(**_: Any) -> None:
    """Open the child's connection before its first turn, if Postgres is there."""
    _spare_collections()
    with contextlib.suppress(FleetError):
        _slot().connection()


def _stop_slots(**_: Any) -> None:
    shutdown.request()
    if _sweeper is not None:
        _sweeper.draining()


def _stop_sweeper(**_: Any) -> None:
    if _sweeper is not None:
        _sweeper.stop()


signals.worker_init.connect(_check)
signals.worker_ready.connect(_start_sweeper)
signals.worker_process_init.connect(_warm_up)
signals.worker_shutting_down.connect(_stop_slots)
signals.worker_shutdown.connect(_stop_sweeper)
