"""Removing what has expired in LangGraph's store, as a maintenance job of the sweep's leader.

Also what nodes gave a ``ttl`` without a word of it in the graphs file. In a thread and on a
session of its own, in small batches.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable

import psycopg

from infra.errors import FleetError
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query

log = logging.getLogger("fleet.expiry")

#: Seconds between two looks where the graphs file names no interval.
STORE_SWEEP = 300.0
_BATCH = 1000


class Expiry:
    """Looks every ``interval`` seconds, when :meth:`tick` is called often enough."""

    def __init__(self, settings: Settings, interval: float, stop: Callable[[], bool]) -> None:
        self._settings = settings
        self._interval = interval
        self._stop = stop
        self._due = time.monotonic() + interval
        self._thread: threading.Thread | None = None

    def tick(self) -> None:
        """Begin a run in the background if one is due. Does not wait."""
        if time.monotonic() < self._due or (self._thread and self._thread.is_alive()):
            return
        self._due = time.monotonic() + self._interval
        self._thread = threading.Thread(target=self._run, name="fleet-expiry", daemon=True)
        self._thread.start()

    def run_once(self) -> int:
        """Remove what has expired by now; how many items. Raises FleetError, psycopg.Error."""
        removed = 0
        with contextlib.closing(connect(self._settings.require_postgres(), "fleet-expiry")) as conn:
            while not self._stop():
                gone = conn.execute(query("sweep_store"), {"limit": _BATCH}).rowcount
                removed += gone
                if gone < _BATCH:
                    break
        return removed

    def _run(self) -> None:
        try:
            if removed := self.run_once():
                log.info("%s expired item(s) of the store were removed", removed)
        except (FleetError, psycopg.Error) as exc:
            log.warning("expired items of the store stay for now: %s", str(exc).strip())
