"""The Celery application and what its settings owe to the design.

Redis carries wake-ups only; the queue is in Postgres. So: late acks and no requeue on a
lost worker (the sweeper takes over in a second), prefetch 1, no ETA, JSON only, no result
backend, and a running turn is left alone when the broker drops.
"""

import sys
from typing import Any

from celery import Celery, signals

from infra.errors import FleetError
from infra.settings import get_settings

#: Pools whose slots can hold a session lock and run a node that blocks.
POOLS = ("prefork", "threads", "solo")


def _configuration() -> dict[str, Any]:
    settings = get_settings()
    return {
        "broker_url": settings.require_redis(),
        "broker_transport_options": {
            # A second line only; takeover comes from the sweeper.
            "visibility_timeout": 3600,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            "unacked_mutex_expire": 30,
            "socket_timeout": 10,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        "broker_channel_error_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "task_acks_late": True,
        "task_ignore_result": True,
        "result_backend": None,
        "task_default_queue": settings.queue,
        "worker_prefetch_multiplier": 1,
        "accept_content": ["json"],
        "task_serializer": "json",
        "event_serializer": "json",
        "worker_proc_alive_timeout": 30,
        "worker_redirect_stdouts": False,
    }


def _create() -> Celery:
    application = Celery("fleet", include=["workers.tasks"])
    try:
        application.conf.update(_configuration())
    except FleetError as exc:
        # Celery's own commands import this module; a mistake in the settings is the user's.
        sys.exit(f"error: {exc}")
    return application


app = _create()


@signals.celeryd_init.connect
def _refuse_greenlets(conf: Any = None, options: Any = None, **_: Any) -> None:
    """A greenlet pool would share one slot's connection between turns."""
    pool = str((options or {}).get("pool") or conf.worker_pool or "prefork")
    name = pool.rsplit(":", 1)[0].rsplit(".", 1)[-1].removeprefix("_")
    if name == "thread":
        name = "threads"
    if name not in POOLS:
        sys.exit(
            f"error: the fleet can't run on the {name} pool: it does not keep one turn to one "
            "thread. Start the worker with --pool prefork (the default) or --pool threads."
        )
