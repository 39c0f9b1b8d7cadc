"""What a forked child makes anew: a lock that another thread of its parent held stays held.

A service may make its Fleet before its server forks, and use it meanwhile.
"""

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    def _start_afresh(self) -> None: ...


_ALL: "weakref.WeakSet[Forked]" = weakref.WeakSet()


def remade_after_fork(made: Forked) -> None:
    """Have `_start_afresh` called in each child, for as long as the object lives."""
    _ALL.add(made)


def _after_fork() -> None:
    for made in list(_ALL):
        made._start_afresh()


os.register_at_fork(after_in_child=_after_fork)
