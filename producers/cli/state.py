"""A thread with what only the full package can read: the graph's state."""

from typing import Any

from infra.postgres import connect

from ..client import Fleet
from ..past.state import state_of
from ..surroundings import addresses


def thread_in_full(thread_id: str) -> dict[str, Any]:
    """What `fleet show` prints, as JSON holds it. Raises UnknownThread."""
    with Fleet() as fleet:
        status = fleet.status(thread_id)
    with connect(addresses(None, None)[0], "fleet-show") as conn:
        return status.model_dump(mode="json") | state_of(conn, status)
