"""The sweep finds nothing."""

from tests.chaos.mutants.whole import app
from workers.sweeper import Sweeper
from workers.waker import Waker


def _tick(self: Sweeper) -> dict[str, int]:
    return {}


def _wake_orphans(self: Waker, owner: str = "") -> int:
    return 0


Sweeper.tick = _tick  # type: ignore[method-assign]
Waker.wake_orphans = _wake_orphans  # type: ignore[method-assign]

__all__ = ["app"]
