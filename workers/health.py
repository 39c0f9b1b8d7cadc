"""A worker's liveness: it keeps FLEET_HEARTBEAT_FILE fresh for as long as it is well.

The file goes stale when the parent's event loop or its sweeper hangs, and when the worker
is gone. It stays fresh while Postgres or the broker is away, which a restart would not
mend, and while the worker finishes its turns after SIGTERM.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra import heartbeat

log = logging.getLogger("fleet.health")

#: Seconds after which a loop that has said nothing is taken to hang.
HUNG = 30.0


def begin(path: Path | None, consumer: Any, sweeper_at: Callable[[], float]) -> "Heart | None":
    """Start writing the file, if one is set."""
    if path is None:
        return None
    heart = Heart(path, consumer, sweeper_at)
    heart.start()
    return heart


class Heart(threading.Thread):
    """Writes the file. ``consumer`` is Celery's, ``sweeper_at`` gives when (of
    time.monotonic()) the sweeper last began a round."""

    def __init__(
        self,
        path: Path,
        consumer: Any,
        sweeper_at: Callable[[], float],
        interval: float = heartbeat.INTERVAL,
    ) -> None:
        super().__init__(name="fleet-heart", daemon=True)
        self._path = path
        self._consumer = consumer
        self._sweeper_at = sweeper_at
        self._interval = interval
        self._loop_at = time.monotonic()
        self._leaving = False
        self._stop_requested = threading.Event()

    def leaving(self) -> None:
        """The worker shuts down: its loop has stopped, its turns have not."""
        self._leaving = True

    def stop(self) -> None:
        """Write no more and take the file away: this worker is gone."""
        self._stop_requested.set()
        self.join(1)
        self._path.unlink(missing_ok=True)

    def run(self) -> None:
        while True:
            self._consumer.call_soon(self._loop_turns)
            self.beat()
            if self._stop_requested.wait(self._interval):
                return

    def beat(self) -> None:
        """Write the file if nothing hangs."""
        if problem := self.problem():
            log.error("no heartbeat: %s", problem)
            return
        try:
            heartbeat.write(self._path, self._consumer.hostname)
        except OSError as exc:
            log.error("the heartbeat file %s can't be written: %s", self._path, exc.strerror)

    def problem(self) -> str | None:
        """What hangs, in words; None when nothing does."""
        now = time.monotonic()
        if now - self._sweeper_at() > HUNG:
            return f"the sweeper has begun no round for {HUNG:.0f} s"
        if self._leaving or self._consumer.connection is None:
            # Without a connection Celery waits for the broker, and its loop stands still.
            self._loop_at = now
        if now - self._loop_at > HUNG:
            return f"the worker's event loop has stood still for {HUNG:.0f} s"
        return None

    def _loop_turns(self) -> None:
        self._loop_at = time.monotonic()
