"""Sessions of chat pages, as a part of the sweep: their states are kept true, and those to which
nobody comes back are closed, whatever became of the gateway that had them."""

import time
from collections.abc import Callable
from typing import Any

#: Seconds between two looks at all that are open, and at those that were never used.
_EVERY, _FORGET_EVERY = 2.0, 600.0


class SessionSweep:
    """`job`: runs a named query of the sweep; None where a row it needs stays locked."""

    def __init__(self, timeout: float, job: Callable[..., list[Any] | None]) -> None:
        self._timeout = timeout
        self._job = job
        self._tended = float("-inf")
        self._forgot = float("-inf")

    def tick(self) -> int:
        """Look if it is time to; how many sessions were closed."""
        now = time.monotonic()
        closed = 0
        if now - self._tended > _EVERY:
            self._tended = now
            closed = sum(n for (n,) in self._job("tend_sessions", {"timeout": self._timeout}) or [])
        if now - self._forgot > _FORGET_EVERY:
            self._forgot = now
            self._job("forget_sessions")
        return closed
