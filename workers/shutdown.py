"""SIGTERM and `fleet drain` reach Celery's parent only; the slots read these bytes.

The page is mapped before the fork and shared by the parent and all of its children.
"""

import mmap

_page = mmap.mmap(-1, 2)
_LEAVING, _HELD = 0, 1


def request() -> None:
    """Ask every slot of this worker to stop at its next superstep."""
    _page[_LEAVING] = 1


def hold(wanted: bool) -> None:
    """As :func:`request`, until it is taken back: the worker stays up meanwhile."""
    _page[_HELD] = int(wanted)


def requested() -> bool:
    """Whether this worker is to take no turns, and to stop those that it has."""
    return _page[_LEAVING] == 1 or _page[_HELD] == 1
