"""The Celery application. Its settings are in workers.configuration, its task in workers.tasks."""

import sys
from typing import Any

from celery import Celery, signals

from infra import telemetry
from infra.masking import Rule
from infra.settings import get_settings

#: Pools whose slots can hold a session lock and run a node that blocks.
POOLS = ("prefork", "threads", "solo")

app = Celery("fleet", include=["workers.tasks"])
app.config_from_object("workers.configuration")


def _refuse_greenlets(conf: Any = None, options: Any = None, **_: Any) -> None:
    """A greenlet pool would share one slot's connection between turns."""
    pool = (options or {}).get("pool") or conf.worker_pool or "prefork"
    path = pool.partition(":")[0] if isinstance(pool, str) else pool.__module__
    name = path.rsplit(".", 1)[-1]
    if name not in (*POOLS, "thread"):
        sys.exit(
            f"error: the fleet can't run on the {name} pool: it does not keep one turn to one "
            "thread. Start the worker with --pool prefork (the default) or --pool threads."
        )


def _refuse_time_limits(conf: Any = None, options: Any = None, **_: Any) -> None:
    """Celery's would end a process in the middle of a turn, or raise anywhere in it.

    Such an end is no crash (the process is told to go), so nobody would ever give the message up.
    """
    for name in ("time_limit", "soft_time_limit"):
        if (options or {}).get(name) or conf[f"task_{name}"]:
            sys.exit(
                f"error: the fleet can't run with Celery's --{name.replace('_', '-')}: it would "
                "end turns in the middle. Leave it out; FLEET_TURN_TIMEOUT says how long a turn "
                "may go on without progress, and an effect has its own timeout."
            )


def _log(
    loglevel: Any = None, logfile: str | None = None, colorize: bool | None = None, **_: Any
) -> None:
    """Our logs in place of Celery's."""
    settings = get_settings()
    rule = Rule.besides(name for name in settings.mask_fields.split(",") if name.strip())
    telemetry.configure(loglevel or "WARNING", logfile, settings.log_format, colorize, rule)


signals.celeryd_init.connect(_refuse_greenlets)
signals.celeryd_init.connect(_refuse_time_limits)
signals.setup_logging.connect(_log)
