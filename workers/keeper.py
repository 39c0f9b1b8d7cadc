"""A slot's keeper thread: flushes an ageing buffer, and pulses the idle connection.

A node may run for minutes after the step before it was buffered; the keeper commits what
is older than ``flush_after`` meanwhile. The pulse lets both ends notice a dead connection.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator

import psycopg

from graphs.control import Control
from infra.settings import Settings
from workers.claim import Claim

log = logging.getLogger("fleet.keeper")


class Keeper:
    """One daemon thread beside one slot. It never holds the claim's lock across a wait."""

    def __init__(self, settings: Settings) -> None:
        self._flush_after = settings.flush_after
        self._pulse_interval = settings.pulse_interval
        self._claim: Claim | None = None
        self._flushes = True
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watching(self, claim: Claim, flushes: bool) -> Iterator[None]:
        """Keep this claim while the block runs; ``flushes`` False: pulse only."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleet-keeper", daemon=True)
            self._thread.start()
        self._claim, self._flushes = claim, flushes
        try:
            yield
        finally:
            self._claim = None

    def _run(self) -> None:
        while True:
            time.sleep(self._flush_after)
            claim = self._claim
            if claim is None:
                continue
            try:
                with claim.lock:
                    if self._claim is not claim:
                        continue
                    if self._flushes and claim.buffer.age() >= self._flush_after:
                        claim.flush()
                    elif claim.silence() > self._pulse_interval:
                        claim.pulse()
            except (Control, psycopg.Error) as exc:
                log.info("nothing more is written for %s: %s", claim.thread_id, exc)
                self._claim = None
