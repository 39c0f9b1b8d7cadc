"""Turns that lost their session while their process lived: no crashes of their messages.

A claim counts a crash ahead, and an orderly end takes it back. A turn whose session Postgres
has dropped can't end in order, so that a restart of Postgres, or three, would count out
messages with nothing wrong about them. The count is taken back on a session of its own, as
soon as Postgres answers. What stays counted: a process that died, and a turn that was
stopped for want of progress. And a message loses no more than so many sessions: one whose
rows take Postgres down each time, say, is no innocent.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import psycopg

from infra.errors import FleetError
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query
from workers.claim import Claim

log = logging.getLogger("fleet.excuses")

#: Seconds between two attempts while Postgres is away.
_PAUSE = 1.0
#: So many of a message's crashes are taken back.
MOST = 10
#: A turn without progress for this part of FLEET_TURN_TIMEOUT was stopped for it.
_NEARLY = 0.9


class Excuses:
    """What one slot owes to messages; filled by its turns and its keeper, paid by the latter.

    owing: called whenever something is owed, so that somebody is there to pay it.
    """

    def __init__(self, settings: Settings, owing: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self._owing = owing
        self._owed: deque[tuple[str, int, int]] = deque()
        self._known: set[int] = set()
        self._lock = threading.Lock()
        self._not_before = 0.0

    def owe(self, claim: Claim) -> None:
        """The claim's session is gone, and this process is not. Counts once a claim."""
        # Measured here it is a round trip less than what the sweep went by.
        if claim.last_barrier_age() >= _NEARLY * self._settings.turn_timeout:
            return
        claimed = claim.claimed
        with self._lock:
            if claimed.epoch not in self._known:
                self._known.add(claimed.epoch)
                self._owed.append((claimed.thread_id, claimed.seq, claimed.epoch))
        self._owing()

    def end_lost(self, claim: Claim) -> None:
        """As `owe`; nobody can tell whether the end of its turn was committed."""
        self.owe(claim)
        log.warning(
            "the session was lost at the end of the turn of %s: where it was not committed, "
            "the sweep hands the message on",
            claim.thread_id,
        )

    def pay(self) -> None:
        """Take back what is owed. While Postgres is away it stays owed."""
        if not self._owed or time.monotonic() < self._not_before:
            return
        try:
            url = self._settings.require_postgres()
            with connect(url, "fleet-excuses") as conn:
                while self._owed:
                    thread_id, seq, epoch = self._owed[0]
                    about = {"thread_id": thread_id, "seq": seq, "epoch": epoch, "most": MOST}
                    conn.execute(query("excuse"), about)
                    with self._lock:
                        self._owed.popleft()
                        self._known.discard(epoch)
        except (FleetError, psycopg.Error) as exc:
            log.info("a lost session is not yet taken back from a crash count: %s", exc)
            self._not_before = time.monotonic() + _PAUSE
