"""At which nodes a checkpoint stands, read off its channels: no graph is needed for it.

A node of a StateGraph is due when its branch channel is there, when all nodes of a join
before it have been seen, or when a task was sent to it (langgraph.graph.state). Nodes that
a graph has lost are found by this; LangGraph itself passes over them without a word.
"""

import base64
from collections.abc import Callable, Collection, Mapping
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.pregel import Pregel

#: The channel of tasks that were sent to nodes (``Send``).
TASKS = "__pregel_tasks"
BRANCH = "branch:to:"
JOIN = "join:"


def pending_nodes(channels: Collection[str], value: Callable[[str], Any]) -> set[str]:
    """Names of the nodes. channels: those with a value; ``value``: reads one of them."""
    nodes = {name.removeprefix(BRANCH) for name in channels if name.startswith(BRANCH)}
    if TASKS in channels:
        nodes |= {str(send.node) for send in value(TASKS) or ()}
    for name in channels:
        if name.startswith(JOIN):
            starts, _, node = name.removeprefix(JOIN).rpartition(":")
            seen, finished = value(name), True
            if isinstance(seen, tuple | list) and len(seen) == 2 and isinstance(seen[1], bool):
                # A deferred node also waits until nothing else is left to run.
                seen, finished = seen
            if seen and finished and len("+".join(seen)) == len(starts):
                nodes.add(node)
    return nodes


def missing_nodes(
    graph: Pregel[Any, Any, Any, Any],
    pending: set[str],
    below: Callable[[], Mapping[str, Any]],
    serde: SerializerProtocol,
) -> list[str]:
    """Nodes at which a thread stands and which the graph or a subgraph of it does not have.

    pending: the root's. below: what fleet.channels_below says; asked only where the thread
    stands at a subgraph. A subgraph's node is named with its path, ``"agent|model"``.
    """
    missing = pending - {str(name) for name in graph.nodes}
    if any(name in pending for name, _ in graph.get_subgraphs()):
        inner = {
            path: set(g.nodes)
            for path, g in graph.get_subgraphs(recurse=True)
            if isinstance(g, Pregel)
        }
        for namespace, found in below().items():
            path = "|".join(s.partition(":")[0] for s in namespace.split("|") if not s.isdigit())
            if path in inner:
                nodes = stored_nodes(found, serde) - inner[path]
                missing |= {f"{path}|{name}" for name in nodes}
    return sorted(missing)


def stored_nodes(found: Mapping[str, Any], serde: SerializerProtocol) -> set[str]:
    """The nodes of a checkpoint as fleet.channels_of gives it."""
    stored = {name: (kind, base64.b64decode(text)) for name, kind, text in found["values"]}
    channels = {*found["channels"], *stored}
    return pending_nodes(channels, lambda name: serde.loads_typed(stored[name]))
