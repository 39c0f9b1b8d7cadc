"""Retention as a maintenance job: the sweep's leader lets it run now and then.

In a thread and on a session of its own, since the sweep must not wait for it. A run that
fails is tried again at the next interval; what it had removed by then stays removed.
"""

import contextlib
import logging
import threading
import time
from typing import Any

import psycopg

from infra.errors import FleetError
from infra.postgres import connect
from infra.retention import Policy, PruneRunning, Pruning
from infra.settings import Settings
from workers.expiry import STORE_SWEEP, Expiry

log = logging.getLogger("fleet.pruner")

_FIRST = 60.0


class Pruner:
    """Prunes every ``prune_interval`` seconds, when :meth:`tick` is called often enough."""

    def __init__(self, settings: Settings, store_sweep: float = STORE_SWEEP) -> None:
        self._settings = settings
        # Not while the worker starts.
        self._due = time.monotonic() + min(_FIRST, settings.prune_interval)
        self._thread: threading.Thread | None = None
        self._stop_requested = threading.Event()
        self._expiry = Expiry(settings, store_sweep, self._stop_requested.is_set)

    def tick(self) -> bool:
        """Begin a run in the background if one is due; whether it did. Does not wait.

        The store's expired items are seen to as well, as often as it has been told.
        """
        self._expiry.tick()
        if time.monotonic() < self._due or (self._thread and self._thread.is_alive()):
            return False
        self._due = time.monotonic() + self._settings.prune_interval
        self._thread = threading.Thread(target=self._run, name="fleet-pruner", daemon=True)
        self._thread.start()
        return True

    def stop(self) -> None:
        """End after the batch that is under way; does not wait."""
        self._stop_requested.set()

    def run_once(self) -> dict[str, int]:
        """Remove what is due now; rows by table, {} while another process prunes.

        Raises FleetError, psycopg.Error.
        """
        url = self._settings.require_postgres()
        with contextlib.closing(connect(url, "fleet-pruner")) as conn:
            pruning = Pruning(conn, Policy.of(self._settings), stop=self._stop_requested.is_set)
            try:
                report = pruning.run()
            except PruneRunning:
                return {}
        if report.delta_threads:
            log.warning(
                "the history of %s thread(s) was left: they use a DeltaChannel, whose values are "
                "rebuilt from older checkpoints; first: %s",
                len(report.delta_threads),
                report.delta_threads[0],
            )
        return dict(report.removed)

    def _run(self) -> None:
        try:
            removed: dict[str, Any] = {t: n for t, n in self.run_once().items() if n}
        except (FleetError, psycopg.Error) as exc:
            log.warning("retention stopped: %s", str(exc).strip())
        else:
            if removed:
                log.info("retention removed rows: %s", removed)
