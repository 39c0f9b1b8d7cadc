"""Holding a worker: it takes no wake-ups and no turns until it is let go (`fleet drain`)."""

import threading
from typing import Any

from workers import shutdown

#: Seconds for the consumer to let go of its queues.
_PATIENCE = 0.4


def hold(consumer: Any, queues: list[str], wanted: bool) -> None:
    """Hold the worker, or let it go. Called in the sweeper's thread."""
    done = threading.Event()
    consumer.call_soon(_select, consumer, queues, not wanted, done)
    # Best in this order: a wake-up that still comes is handed back. But a consumer that
    # waits for its broker must not keep the turns going.
    done.wait(_PATIENCE)
    shutdown.hold(wanted)


def _select(consumer: Any, queues: list[str], wanted: bool, done: threading.Event) -> None:
    """Consume from the queues or not. A broker that is away is met again with what is
    selected now."""
    try:
        for queue in queues:
            (consumer.add_task_queue if wanted else consumer.cancel_task_queue)(queue)
    finally:
        done.set()
