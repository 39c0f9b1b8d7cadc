"""The one Celery task, and the worker's life around it.

The parent process loads the registry before the fork and keeps the sweeper; a slot is made
lazily by the process or thread that serves.
"""

import contextlib
import functools
import gc
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from celery import Task, signals
from celery.concurrency.thread import TaskPool as ThreadsPool
from celery.exceptions import WorkerLostError
from celery.worker.request import Request

from graphs.registry import Registry
from infra import metrics as counts
from infra import vectors
from infra.errors import FleetError
from infra.masking import mask, mask_text
from infra.migrate import register_graphs, require_migrated
from infra.postgres import connect, refuse_transaction_pooler
from infra.settings import get_settings
from producers.wakeup import NO_LIMIT, VERSION, Wake, publish_many
from workers import (
    health,
    holding,
    inline,
    metrics,
    notifier,
    publisher,
    revisits,
    shutdown,
    streaming,
)
from workers.app import app
from workers.drain import drain
from workers.expiry import STORE_SWEEP
from workers.hung import hung
from workers.leftovers import leftovers
from workers.slot import Slot
from workers.sweeper import Sweeper

log = logging.getLogger("fleet.tasks")

_registry: Registry | None = None
_sweeper: Sweeper | None = None
_heart: health.Heart | None = None
_notifiers: list[notifier.Notifier] = []
_slots = threading.local()
#: Those of this process.
_made: list[Slot] = []
#: Seconds for the last events to go out.
_PATIENCE = 0.4
#: This worker's name and the queues it was started with; set before the fork.
_name: str | None = None
_queues: tuple[str, ...] = ()


class TurnsRequest(Request):  # type: ignore[misc]
    """Celery's request in the parent; a lost child is looked after at once.

    Its arguments are shown to Flower and to `inspect` masked: a key may be a phone number.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._argsrepr = mask_text(str(self._request_dict.get("argsrepr", "")))

    def info(self, safe: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = super().info(safe)
        return found | {"args": mask(found["args"])}

    def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        # billiard hands over most exceptions wrapped in one that carries the traceback.
        exc = getattr(exc_info.exception, "exc", exc_info.exception)
        if isinstance(exc, WorkerLostError) and _sweeper is not None:
            _sweeper.kick()
            counts.process_lost()
        return super().on_failure(exc_info, *args, **kwargs)


class TurnsTask(Task):  # type: ignore[misc]
    """The task's class: it only names the request class above."""

    Request = TurnsRequest


@app.task(name="fleet.turns", base=TurnsTask)  # type: ignore[untyped-decorator]
def turns(thread_id: str = "", *_: Any, v: int = VERSION, **__: Any) -> list[dict[str, Any]]:
    """Serve the thread that the wake-up names, then other due mail.

    Returns what was done, ``[{"thread_id", "seq", "epoch", "outcome"}]``.
    """
    try:
        slot = _slot()
        slot.begin_with(_came_from(slot.queues[0]))
        if v > VERSION:
            return _serve_others(slot, v)
        if shutdown.requested() or leftovers.hand_on(thread_id):
            # What is claimed now could only be released again, or left once more.
            return _hand_back(slot, thread_id)
        return mask(drain(slot, thread_id))  # type: ignore[no-any-return]
    except (psycopg.OperationalError, FleetError) as exc:
        # The mail is safe in Postgres; the sweeper wakes somebody when it is back.
        log.error("no turn of %s for now: %s", thread_id, str(exc).strip())
        return []


def _came_from(default: str) -> str:
    """The queue that the wake-up lay in."""
    where = turns.request.delivery_info or {}
    key = where.get("routing_key")
    # Without an exchange the routing key is the queue's name; with one it may be anything.
    return key if key and (key in _queues or not where.get("exchange")) else default


def _serve_others(slot: Slot, version: int) -> list[dict[str, Any]]:
    """A wake-up of a newer release says we know not what: serve what is due, if anything."""
    log.warning(
        "a wake-up of version %s is newer than this worker, which knows version %s: other due "
        "mail is served",
        version,
        VERSION,
    )
    due = slot.due()
    return [] if due is None else mask(drain(slot, due.thread_id))


def _hand_back(slot: Slot, thread_id: str) -> list[dict[str, Any]]:
    """Leave the wake-up to another worker. When that fails the sweeper wakes somebody."""
    publish_many(slot.broker, [Wake(slot.queues[0], thread_id, NO_LIMIT)])
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
        queue, *others = _queues or (settings.queue,)
        slot = _slots.slot = Slot(settings, registry(), queue, _name, others)
        _made.append(slot)
    return slot


def _or_exit(begin: Callable[..., None]) -> Callable[..., None]:
    """End the worker, with one sentence, where a step of its start fails.

    Celery's signals swallow every Exception: it would go on without that step.
    """

    @functools.wraps(begin)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            begin(*args, **kwargs)
        except FleetError as exc:
            sys.exit(f"error: {exc}")
        except psycopg.Error as exc:
            said = (exc.diag.message_primary or str(exc).strip()).rstrip(".")
            sys.exit(
                f"error: Postgres refused what a worker needs at its start: {said}. Let the user "
                "of FLEET_POSTGRES_URL do that, or start the worker again."
            )
        except Exception as exc:
            log.debug("the worker's start failed", exc_info=True)
            sys.exit(f"error: the worker could not start: {type(exc).__name__}: {exc}.")

    return run


@_or_exit
def _check(sender: Any = None, **_: Any) -> None:
    """Refuse to start where the guarantees would not hold; make the graphs known."""
    global _name, _queues
    _name = sender.hostname
    _queues = tuple(queue.name for queue in sender.app.amqp.queues.consume_from.values())
    url = get_settings().require_postgres()
    refuse_transaction_pooler(url)
    with contextlib.closing(connect(url, "fleet-check")) as conn:
        require_migrated(conn)
        if (dims := registry().store.dims) is not None:
            vectors.require(conn, dims)
            registry().store_index()
        register_graphs(conn, registry().described())


@_or_exit
def _stand_in(**_: Any) -> None:
    """In a chaos run, before graphs are loaded: what they call is recorded."""
    if (trial := get_settings().chaos_trial) is not None:
        from workers.chaos import install

        install(trial)


@_or_exit
def _count(**_: Any) -> None:
    """Before graphs are loaded: one of them may import what counts."""
    metrics.prepare(get_settings())


def _meet_langgraph(**_: Any) -> None:
    """Before the pool's processes are forked: each would read LangGraph's source for itself."""
    inline.install()
    revisits.install()
    streaming.hearable()


def _spare_collections() -> None:
    """What was imported lives as long as the process: no collection need look at it again.

    A turn makes many short-lived objects, each run of the collector would scan it all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@_or_exit
def _start_sweeper(sender: Any = None, **_: Any) -> None:
    global _sweeper, _heart
    pool = sender.controller.pool
    if isinstance(pool, ThreadsPool):
        hung.slots = int(sender.controller.concurrency)
        hung.leave = functools.partial(shutdown.leave, goodbye=_stop_sweeper)
    _sweeper = Sweeper(
        get_settings(),
        worker=sender.hostname,
        queues=[*_queues],
        slots=int(sender.controller.concurrency),
        pool=type(pool).__module__.rsplit(".", 1)[-1],
        hold=functools.partial(holding.hold, sender, [*_queues]),
        store_sweep=registry().store.sweep_seconds or STORE_SWEEP,
    )
    _sweeper.start()
    _heart = health.begin(get_settings().heartbeat_file, sender, _sweeper.round_at)
    metrics.serve(get_settings(), _sweeper.leads)
    _notifiers.extend(notifier.begin(get_settings(), sender.hostname))


def _warm_up(**_: Any) -> None:
    """Open the child's connection before its first turn, if Postgres is there."""
    _spare_collections()
    with contextlib.suppress(FleetError):
        _slot().connection()


def _stop_slots(**_: Any) -> None:
    shutdown.request()
    if _heart is not None:
        _heart.leaving()
    if _sweeper is not None:
        _sweeper.draining()


def _stop_sweeper(**_: Any) -> None:
    for telling in _notifiers:
        telling.stop()
    if _sweeper is not None:
        _sweeper.stop()
    while _notifiers:
        _notifiers.pop().join(1)
    if _heart is not None:
        _heart.stop()
    metrics.close()


def _close_slots(**_: Any) -> None:
    """What graphs have opened is left in order: the pool's processes or threads are done."""
    while _made:
        _made.pop().close()
    publisher.flush(_PATIENCE)


signals.worker_init.connect(_stand_in)
signals.worker_init.connect(_count)
signals.worker_init.connect(_check)
signals.worker_init.connect(_meet_langgraph)
signals.worker_ready.connect(_start_sweeper)
signals.worker_process_init.connect(_warm_up)
signals.worker_shutting_down.connect(_stop_slots)
signals.worker_shutdown.connect(_stop_sweeper)
signals.worker_shutdown.connect(_close_slots)
signals.worker_process_shutdown.connect(_close_slots)
