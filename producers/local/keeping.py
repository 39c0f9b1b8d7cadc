"""A process that is started again when it dies, and ended in order when it is to end."""

import signal
from collections import deque
from collections.abc import Callable

from infra.errors import FleetError, ServerFailed

from .processes import Process

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
#: After this many seconds without an end, the next one is none of a row.
_SETTLED_AFTER = 60.0
#: So many ends within `_ROW_WITHIN` seconds, and another start would end no better.
_LONGEST_ROW, _ROW_WITHIN = 5, 60.0


class Kept:
    """One process by name; `start` starts it, `say` is told what happens to it.

    `needed`: without it the rest is of no use, so that it can't be given up alone.
    """

    def __init__(
        self,
        name: str,
        process: Process,
        start: Callable[[], Process],
        say: Callable[[str], None],
        now: float,
        *,
        needed: bool = True,
    ) -> None:
        self.name = name
        self.process: Process | None = process
        self._log_path = process.log_path
        self._start = start
        self._say = say
        self._since = self._due = now
        self._pause = _FIRST_PAUSE
        self._ends: deque[float] = deque(maxlen=_LONGEST_ROW)
        self._needed = needed
        self._given_up = False

    def look(self, now: float) -> None:
        """Start it again where need be; `now` is monotonic.

        Raises ServerFailed when it is needed and has ended too often in a row.
        """
        if self.process is None:
            if now >= self._due and not self._given_up:
                self._again(now)
            return
        code = self.process.child.poll()
        if code is None:
            return
        # What a killed parent left of its group would go on beside the new one.
        self.process.child.kill_group()
        if now - self._since > _SETTLED_AFTER:
            self._pause = _FIRST_PAUSE
        last = self.process.last_words().rstrip(".")
        self.process = None
        self._later(now, f"{self.name} {how(code)}; its last words: {last}.")

    def _again(self, now: float) -> None:
        try:
            self.process = self._start()
        except FleetError as exc:
            self._later(now, f"{self.name} did not start: {exc}")
            return
        self._since = now
        self._say(f"{self.name} is started again.")

    def _later(self, now: float, what: str) -> None:
        self._ends.append(now)
        if len(self._ends) == _LONGEST_ROW and now - self._ends[0] < _ROW_WITHIN:
            self._give_up(what)
            return
        self._due = now + self._pause
        self._say(f"{what} It is started again in {self._pause:g} s.")
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _give_up(self, what: str) -> None:
        self._given_up = True
        why = f"{what} That was the {_LONGEST_ROW}th time within {_ROW_WITHIN:g} s"
        if self._needed:
            raise ServerFailed(
                f"{why}.", f"See {self._log_path}, put it right and start again; the data is kept."
            )
        self._say(f"{why}: it is left out. See {self._log_path}.")


def how(code: int) -> str:
    """What an exit code says."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
