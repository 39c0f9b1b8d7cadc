"""A process that is started again when it dies, and ended in order when it is to end."""

import signal
from collections.abc import Callable

from infra.errors import ServerFailed

from .processes import Process

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
#: After this many seconds without an end, the next one is none of a row.
_SETTLED_AFTER = 60.0


class Kept:
    """One process by name; `start` starts it, `say` is told what happens to it."""

    def __init__(
        self, name: str, start: Callable[[], Process], say: Callable[[str], None], now: float
    ) -> None:
        self.name = name
        self.process: Process | None = start()
        self._start = start
        self._say = say
        self._since = self._due = now
        self._pause = _FIRST_PAUSE

    def look(self, now: float) -> None:
        """Start it again where need be; `now` is monotonic."""
        if self.process is None:
            if now >= self._due:
                self._again(now)
            return
        code = self.process.child.poll()
        if code is None:
            return
        # What a killed parent left of its group would go on beside the new one.
        self.process.child.kill_group()
        if now - self._since > _SETTLED_AFTER:
            self._pause = _FIRST_PAUSE
        last = self.process.last_words()
        self.process = None
        self._later(now, f"{self.name} {_how(code)}; its last words: {last}")

    def _again(self, now: float) -> None:
        try:
            self.process = self._start()
        except ServerFailed as exc:
            self._later(now, f"{self.name} did not start: {exc.message}")
            return
        self._since = now
        self._say(f"{self.name} is started again.")

    def _later(self, now: float, what: str) -> None:
        self._due = now + self._pause
        self._say(f"{what.rstrip('.')}. It is started again in {self._pause:g} s.")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)


def _how(code: int) -> str:
    """What an exit code says."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
