"""At which nodes a checkpoint stands, read off its channels: no graph is needed for it.

A node of a StateGraph is due when its branch channel is there, when all nodes of a join
before it have been seen, or when a task was sent to it (langgraph.graph.state). Nodes that
a graph has lost are found by this; LangGraph itself passes over them without a word.
"""

from collections.abc import Callable, Collection
from typing import Any

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
