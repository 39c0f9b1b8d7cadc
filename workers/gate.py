"""Who runs beside whom in one process: a message that has crashed before runs alone.

In prefork a slot is a process and the gate is always open. In the threads pool a crash
takes the whole process, and the messages beside the culprit would be counted out with it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PATIENCE = 5.0


class Gate:
    """Many ordinary turns, or one that runs alone; one that waits to be alone goes first.

    Nobody waits in line with a message that is claimed: it would be counted with the crash of
    the one before. Each Python thread is inside at most once.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ordinary: set[int] = set()
        #: Waiting to be alone, or alone.
        self._alone: int | None = None

    @contextmanager
    def ordinary(self) -> Iterator[bool]:
        """Enter unless somebody is or waits to be alone: then False, and nothing may run."""
        me = threading.get_ident()
        with self._changed:
            entered = self._alone is None
            if entered:
                self._ordinary.add(me)
        try:
            yield entered
        finally:
            self.forget(me)

    @contextmanager
    def alone(self, still_waiting: Callable[[], None]) -> Iterator[bool]:
        """Enter when those inside have left; False, at once, where somebody else is or waits to
        be alone. ``still_waiting`` is called every five seconds."""
        me = threading.get_ident()
        with self._changed:
            entered = self._alone is None
            if entered:
                self._alone = me
        try:
            with self._changed:
                while entered and self._ordinary:
                    if not self._changed.wait(_PATIENCE):
                        still_waiting()
            yield entered
        finally:
            self.forget(me)

    def wait(self) -> bool:
        """Wait until an ordinary turn may enter, at most five seconds; whether it may."""
        with self._changed:
            return self._changed.wait_for(lambda: self._alone is None, _PATIENCE)

    def forget(self, thread: int) -> None:
        """This Python thread has left, or hangs and will be waited for no more."""
        with self._changed:
            self._ordinary.discard(thread)
            if self._alone == thread:
                self._alone = None
            self._changed.notify_all()


#: The gate of this process.
gate = Gate()
