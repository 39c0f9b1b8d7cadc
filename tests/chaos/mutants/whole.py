"""Nothing is taken out. At the failpoint action `disconnect` a session lives on, and only its
locks are gone, as behind a pooler that was not noticed: so the epoch can be attacked alone.
"""

from collections.abc import Callable
from typing import Any

from infra import failpoints
from workers import slot
from workers.app import app


def _only_unlock(disconnect: Callable[[], None] | None) -> None:
    its_slot: Any = getattr(disconnect, "__self__", None)
    failpoints.on_disconnect(lambda: its_slot._conn.execute("SELECT pg_advisory_unlock_all()"))


slot.on_disconnect = _only_unlock  # type: ignore[attr-defined]

__all__ = ["app"]
