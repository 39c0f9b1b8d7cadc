"""Nodes that do not return although their claim is lost: each keeps a slot for nothing.

A thread can't be ended from outside, a process can. A process of the prefork pool has one
slot: it ends, and Celery starts another. In the threads pool the others go on meanwhile,
and the process ends when it has no slot left; whoever started it starts it again.
"""

import logging
import os
import threading

from workers.gate import gate

log = logging.getLogger("fleet.hung")


class Hung:
    """The slots of one process that hang, by their threads. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[int] = set()
        #: How many turns this process can run at once.
        self.slots = 1

    def give_up(self, thread: int, thread_id: str) -> None:
        """The slot of this Python thread is lost to a node of ``thread_id``'s."""
        with self._lock:
            self._threads.add(thread)
            left = self.slots - len(self._threads)
        if left > 0:
            log.error(
                "a node of %s does not return although its turn was taken away: %s of this "
                "worker's %s slots are left, a restart frees the others",
                thread_id,
                left,
                self.slots,
            )
            # Its turn is over: a message that is to run alone need not wait for it.
            gate.forget(thread)
            return
        log.critical(
            "a node of %s does not return although its turn was taken away: this process ends, "
            "so that its slot is free again",
            thread_id,
        )
        os._exit(1)

    def returned(self, thread: int) -> None:
        """It came back after all."""
        with self._lock:
            self._threads.discard(thread)


#: Those of this process.
hung = Hung()
