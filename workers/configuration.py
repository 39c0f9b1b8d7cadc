"""Celery's configuration, read when Celery first needs it, and what it owes to the design.

Redis carries wake-ups only; the queue is in Postgres. So: late acks and no requeue on a
lost worker (the sweeper takes over in a second), prefetch 1, no ETA, JSON only, no result
backend, and a running turn is left alone when the broker drops.
"""

import ssl
import sys

from celery.concurrency.asynpool import AsynPool
from kombu.transport import TRANSPORT_ALIASES

from infra.errors import FleetError
from infra.settings import get_settings


def _kombu_url(url: str) -> str:
    """kombu's name for a Unix socket; every other URL is the one redis-py takes."""
    if not url.startswith("unix://"):
        return url
    path, _, options = url.removeprefix("unix://").partition("?")
    return f"redis+socket://{path}?{options.replace('db=', 'virtual_host=')}"


try:
    _settings = get_settings()
    broker_url = _kombu_url(_settings.require_redis())
except FleetError as exc:
    # Celery's own commands end up here; a mistake in the settings is the user's.
    sys.exit(f"error: {exc}")

# What is no wake-up must not end the worker: see workers.rejects.
TRANSPORT_ALIASES["redis"] = TRANSPORT_ALIASES["rediss"] = "workers.rejects:Transport"
worker_consumer = "workers.rejects:Consumer"
# Celery looks for a dead process of its pool when the pipe to it closes, which is before the
# process can be waited for (its threads still end), and then not again for five seconds.
AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.1})
broker_transport_options = {
    # A second line only: takeover comes from the sweeper.
    "visibility_timeout": 3600,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 30,
    "socket_timeout": 10,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 10,
}
if broker_url.startswith("rediss://"):
    # kombu would take any certificate; our own clients do not.
    broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
broker_channel_error_retry = True
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
worker_cancel_long_running_tasks_on_connection_loss = False
task_acks_late = True
task_ignore_result = True
task_default_queue = _settings.queue
worker_prefetch_multiplier = 1
accept_content = ["json"]
task_serializer = "json"
event_serializer = "json"
worker_proc_alive_timeout = 30
