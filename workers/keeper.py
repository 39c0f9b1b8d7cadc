"""A slot's keeper thread: flushes an ageing buffer, pulses the idle connection, and gives up
on a node that does not return.

A node may run for minutes after the step before it was buffered; the keeper commits what
is older than ``flush_after`` meanwhile. The pulse lets both ends notice a dead connection.
Once a claim is lost its node can write nothing more, and somebody else has the thread: one
that goes on for longer than ``hung_grace`` keeps nothing but the slot, see workers.hung.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg

from graphs.control import Control
from infra.settings import Settings
from workers.claim import Claim
from workers.excuses import Excuses
from workers.hung import hung

log = logging.getLogger("fleet.keeper")


@dataclass(slots=True, eq=False)
class _Watch:
    """One run of a graph under a claim."""

    claim: Claim
    flushes: bool
    thread: int
    #: When the node must have returned, of time.monotonic(); None while it may write.
    until: float | None = None
    given_up: bool = False


class Keeper:
    """One daemon thread beside one slot. It never holds the claim's lock across a wait."""

    def __init__(self, settings: Settings) -> None:
        self._flush_after = settings.flush_after
        self._pulse_interval = settings.pulse_interval
        self._turn_timeout = settings.turn_timeout
        self._grace = settings.hung_grace
        #: Of this slot's turns.
        self.excuses = Excuses(settings, self._begin)
        self._watch: _Watch | None = None
        # So that a node which returns at the last moment has its process to itself.
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextlib.contextmanager
    def watching(self, claim: Claim, flushes: bool) -> Iterator[None]:
        """Keep this claim while the block runs; ``flushes`` False: pulse only."""
        self._begin()
        watch = self._watch = _Watch(claim, flushes, threading.get_ident())
        try:
            yield
        finally:
            with self._lock:
                self._watch = None
                if watch.given_up:
                    hung.returned(watch.thread)

    def _begin(self) -> None:
        """Start the thread, once: with the first graph, or where something is owed before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="fleet-keeper", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(self._flush_after)
            self.excuses.pay()
            watch = self._watch
            if watch is None:
                continue
            if watch.until is None:
                self._keep(watch)
            elif not watch.given_up and time.monotonic() > watch.until:
                self._give_up(watch)

    def _keep(self, watch: _Watch) -> None:
        claim = watch.claim
        try:
            with claim.lock:
                if self._watch is not watch:
                    return
                claim.settle()
                if watch.flushes and claim.buffer.age() >= self._flush_after:
                    claim.flush()
                elif claim.silence() > self._pulse_interval:
                    claim.pulse()
        except (Control, psycopg.Error) as exc:
            log.info("nothing more is written for %s: %s", claim.thread_id, exc)
            # Where the session still lives, the sweep ends it for want of progress.
            if claim.lost:
                self.excuses.owe(claim)
            patience = self._grace if claim.lost else self._turn_timeout + self._grace
            watch.until = time.monotonic() + patience

    def _give_up(self, watch: _Watch) -> None:
        with self._lock:
            if self._watch is watch:
                watch.given_up = True
                hung.give_up(watch.thread, watch.claim.thread_id)
