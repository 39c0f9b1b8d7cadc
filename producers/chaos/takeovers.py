"""How long the turns of killed processes stand still: from the kill to the next claim.

A process is stopped just before it is killed, to see what it has in hand; in between the
look at it sends nothing and gets nothing, so the kill comes at the same point of its work.
Whatever else goes on meanwhile counts with it: slots that are busy, servers that are away.
"""

import time
from collections.abc import Collection

from ..local.processes import slot_pid
from .arena import Arena


class Takeovers:
    """``seconds``: one for each turn that was taken over. Not thread safe."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.seconds: list[float] = []
        #: Since when, and which epoch, by thread.
        self._waiting: dict[str, tuple[float, int]] = {}

    def held(self, pids: Collection[int]) -> dict[str, int]:
        """The epochs of the threads that these processes, stopped, have in hand."""
        rows = self._arena.ask("chaos_running") or []
        return {thread: epoch for thread, epoch, owner in rows if slot_pid(owner) in pids}

    def begin(self, held: dict[str, int]) -> None:
        """They were killed this moment. Another's kill while one waits starts it anew."""
        now = time.monotonic()
        self._waiting |= {thread: (now, epoch) for thread, epoch in held.items()}

    def look(self) -> None:
        """See which have been taken over since."""
        if not self._waiting:
            return
        now = time.monotonic()
        rows = self._arena.ask("chaos_threads_now", threads=[*self._waiting])
        for thread, epoch, status in rows or []:
            since, before = self._waiting[thread]
            if epoch > before:
                self.seconds.append(now - since)
            elif status == "running":
                continue
            # Else its end was on its way to Postgres already.
            del self._waiting[thread]
