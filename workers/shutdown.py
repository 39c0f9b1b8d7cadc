"""SIGTERM reaches Celery's parent only; the slots read this byte.

The page is mapped before the fork and shared by the parent and all of its children.
"""

import mmap

_page = mmap.mmap(-1, 1)


def request() -> None:
    """Ask every slot of this worker to stop at its next superstep."""
    _page[0] = 1


def requested() -> bool:
    """Whether this worker is to stop."""
    return _page[0] == 1
