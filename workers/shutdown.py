"""SIGTERM and `fleet drain` reach Celery's parent only; the slots read these bytes.

The page is mapped before the fork and shared by the parent and all of its children.
"""

import mmap
import os
import signal
import threading
import time
from collections.abc import Callable

from celery.worker import state

_page = mmap.mmap(-1, 2)
_LEAVING, _HELD = 0, 1
#: Seconds between two looks at what is still busy.
_LOOK = 0.1


def request() -> None:
    """Ask every slot of this worker to stop at its next superstep."""
    _page[_LEAVING] = 1


def hold(wanted: bool) -> None:
    """As :func:`request`, until it is taken back: the worker stays up meanwhile."""
    _page[_HELD] = int(wanted)


def requested() -> bool:
    """Whether this worker is to take no turns, and to stop those that it has."""
    return _page[_LEAVING] == 1 or _page[_HELD] == 1


def leave(hanging: Callable[[], int], goodbye: Callable[[], None]) -> None:
    """Shut this worker of the threads pool down although so many of its slots never return.

    As at SIGTERM; but Celery would wait for those for ever.
    """
    main = threading.main_thread().ident
    if _page[_LEAVING] == 0 and main is not None:
        signal.pthread_kill(main, signal.SIGTERM)
    while len(state.active_requests) > hanging():
        time.sleep(_LOOK)
    goodbye()
    os._exit(1)
