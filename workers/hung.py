"""Nodes that do not return although their claim is lost: each keeps a slot for nothing.

A thread can't be ended from outside, a process can. A process of the prefork pool has one
slot: it ends, and Celery starts another. In the threads pool the others go on meanwhile.
When a tenth of its slots hang, the process takes no more turns, and ends when the others
have ended theirs; whoever started it starts it again.
"""

import logging
import os
import threading
from collections.abc import Callable

from workers.gate import gate

log = logging.getLogger("fleet.hung")

#: One slot in so many may hang, less one, before the process leaves.
_ONE_IN = 10


class Hung:
    """The slots of one process that hang, by their threads. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        self._leaving = False
        #: How many turns this process can run at once.
        self.slots = 1
        #: Ends this process once no more than so many of its slots are busy.
        self.leave: Callable[[Callable[[], int]], None] = lambda _: os._exit(1)

    def give_up(self, thread: int, thread_id: str) -> None:
        """The slot of this Python thread is lost to a node of ``thread_id``'s."""
        with self._lock:
            self._threads.add(thread)
            hanging = len(self._threads)
            leaves = hanging * _ONE_IN >= self.slots and not self._leaving
            self._leaving = self._leaving or leaves
        left = self.slots - hanging
        if left <= 0:
            log.critical(
                "a node of %s does not return although its turn was taken away: this process "
                "ends, so that its slot is free again",
                thread_id,
            )
            os._exit(1)
        log.error(
            "a node of %s does not return although its turn was taken away: %s of this worker's "
            "%s slots are left",
            thread_id,
            left,
            self.slots,
        )
        # Its turn is over: a message that is to run alone need not wait for it.
        gate.forget(thread)
        if leaves:
            log.critical(
                "a tenth of this worker's slots hang: it takes no more turns, and ends when the "
                "others have ended theirs, so that all are free again"
            )
            threading.Thread(
                target=self.leave, args=(self.hanging,), name="fleet-leaving", daemon=True
            ).start()

    def hanging(self) -> int:
        """How many of the slots hang."""
        with self._lock:
            return len(self._threads)

    def returned(self, thread: int) -> None:
        """It came back after all."""
        with self._lock:
            self._threads.discard(thread)


#: Those of this process.
hung = Hung()
