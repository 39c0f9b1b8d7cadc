"""What a deploy of this checkout would leave behind: threads that stand where it has no node.

`fleet doctor --before-deploy` lists them; a worker of this checkout would leave each as
`incompatible` until its node is back or `fleet amend` moves it on.
"""

from typing import Any

from graphs.pending import missing_nodes, stored_nodes
from graphs.registry import RegisteredGraph, Registry
from graphs.stored import SERDE
from infra.errors import RegistryError

from .. import queries
from ..client import Fleet

#: Open threads looked at, those that changed last first.
MOST = 100_000


def incompatible_threads(
    fleet: Fleet, registry: Registry, limit: int = MOST
) -> list[dict[str, Any]]:
    """``{"thread_id", "graph", "status", "missing", "reason"}`` of each such thread.

    missing: the nodes; none where the graph itself is missing or can't be loaded.
    """
    found = []
    for row in fleet._sessions.run(
        lambda conn: queries.rows(conn, "standing_threads", limit=limit), reads=True
    ):
        graph, reason = _graph(registry, row["graph"])
        missing = [] if graph is None else _missing(graph, row)
        if missing:
            reason = f"graph {row['graph']} has no node {', '.join(missing)}"
        if reason:
            found.append(
                {
                    "thread_id": row["thread_id"],
                    "graph": row["graph"],
                    "status": row["status"],
                    "missing": missing,
                    "reason": reason,
                }
            )
    return found


def _graph(registry: Registry, name: str) -> tuple[RegisteredGraph | None, str]:
    try:
        return registry.get(name), ""
    except RegistryError as exc:
        return None, exc.message


def _missing(graph: RegisteredGraph, row: dict[str, Any]) -> list[str]:
    """The nodes at which it stands and which the graph does not have, as a worker sees it."""
    pending = stored_nodes(row["root"], SERDE)
    return missing_nodes(graph.graph, pending, lambda: row["below"], SERDE)
