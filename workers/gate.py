"""Who runs beside whom in one process: a message that has crashed before runs alone.

In prefork a slot is a process and the gate is always open. In the threads pool a crash
takes the whole process, and the messages beside the culprit would be counted out with it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 5.0


class Gate:
    """Many ordinary turns, or one that runs alone; those waiting to be alone go first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ordinary = 0
        self._alone = 0
        self._running_alone = False

    @contextmanager
    def ordinary(self) -> Iterator[bool]:
        """Enter unless somebody is or waits to be alone: then False, and nothing may run.

        Not waited for: a claimed message would be counted with the crash of the other.
        """
        with self._changed:
            entered = not self._alone
            self._ordinary += entered
        try:
            yield entered
        finally:
            self._leave(ordinary=entered)

    @contextmanager
    def alone(self, still_waiting: Callable[[], None]) -> Iterator[None]:
        """Wait until nobody else is inside; ``still_waiting`` is called every five seconds."""
        with self._changed:
            self._alone += 1
        try:
            with self._changed:
                while self._ordinary or self._running_alone:
                    if not self._changed.wait(_PATIENCE):
                        still_waiting()
                self._running_alone = True
            try:
                yield
            finally:
                self._running_alone = False
        finally:
            self._leave(alone=1)

    def wait(self) -> bool:
        """Wait until an ordinary turn may enter, at most five seconds; whether it may."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._alone, _PATIENCE)

    def _leave(self, ordinary: int = 0, alone: int = 0) -> None:
        with self._changed:
            self._ordinary -= ordinary
            self._alone -= alone
            self._changed.notify_all()


#: The gate of this process.
gate = Gate()
