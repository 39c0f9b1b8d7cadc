"""Who runs beside whom in one process: a message that has crashed before runs alone.

In prefork a slot is a process and the gate is always open. In the threads pool a crash
takes the whole process, and the messages beside the culprit would be counted out with it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Gate:
    """Many ordinary turns, or one that runs alone; those waiting to be alone go first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ordinary = 0
        self._alone = False
        self._waiting = 0

    @contextmanager
    def turn(self, alone: bool, still_waiting: Callable[[], None]) -> Iterator[None]:
        """Enter, run, leave. ``still_waiting`` is called every five seconds of waiting."""
        self._enter(alone, still_waiting)
        try:
            yield
        finally:
            with self._changed:
                if alone:
                    self._alone = False
                else:
                    self._ordinary -= 1
                self._changed.notify_all()

    def _enter(self, alone: bool, still_waiting: Callable[[], None]) -> None:
        with self._changed:
            self._waiting += alone
            try:
                while self._alone or (self._ordinary if alone else self._waiting):
                    if not self._changed.wait(5):
                        still_waiting()
            finally:
                self._waiting -= alone
            if alone:
                self._alone = True
            else:
                self._ordinary += 1


#: The gate of this process.
gate = Gate()
