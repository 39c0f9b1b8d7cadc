"""Who runs beside whom in one process: a message that has crashed before runs alone.

In prefork a slot is a process and the gate is always open. In the threads pool a crash
takes the whole process, and the messages beside the culprit would be counted out with it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 5.0


class Gate:
    """Many ordinary turns, or one that runs alone; those waiting to be alone go first.

    Each Python thread is inside at most once.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ordinary: set[int] = set()
        #: Waiting to be alone, or alone.
        self._alone: set[int] = set()
        self._running_alone: int | None = None

    @contextmanager
    def ordinary(self) -> Iterator[bool]:
        """Enter unless somebody is or waits to be alone: then False, and nothing may run.

        Not waited for: a claimed message would be counted with the crash of the other.
        """
        me = threading.get_ident()
        with self._changed:
            entered = not self._alone
            if entered:
                self._ordinary.add(me)
        try:
            yield entered
        finally:
            self.forget(me)

    @contextmanager
    def alone(self, still_waiting: Callable[[], None]) -> Iterator[None]:
        """Wait until nobody else is inside; ``still_waiting`` is called every five seconds."""
        me = threading.get_ident()
        with self._changed:
            self._alone.add(me)
        try:
            with self._changed:
                while self._ordinary or self._running_alone is not None:
                    if not self._changed.wait(_PATIENCE):
                        still_waiting()
                self._running_alone = me
            yield
        finally:
            self.forget(me)

    def wait(self) -> bool:
        """Wait until an ordinary turn may enter, at most five seconds; whether it may."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._alone, _PATIENCE)

    def forget(self, thread: int) -> None:
        """This Python thread has left, or hangs and will be waited for no more."""
        with self._changed:
            self._ordinary.discard(thread)
            self._alone.discard(thread)
            if self._running_alone == thread:
                self._running_alone = None
            self._changed.notify_all()


#: The gate of this process.
gate = Gate()
