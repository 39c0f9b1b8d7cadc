"""The sweep finds nothing."""

from tests.chaos.mutants.whole import app
from workers.sweeper import Sweeper


def _tick(self: Sweeper) -> dict[str, int]:
    return {}


def _wake_orphans(self: Sweeper, owner: str = "") -> int:
    return 0


Sweeper.tick = _tick  # type: ignore[method-assign]
Sweeper.wake_orphans = _wake_orphans  # type: ignore[method-assign]

__all__ = ["app"]
