"""Copies of a compiled graph that keep what LangGraph's own copy forgets."""

from typing import Any, TypeVar

from langgraph.checkpoint.serde import _msgpack
from langgraph.pregel import Pregel

G = TypeVar("G", bound="Pregel[Any, Any, Any, Any]")


def copied(graph: G, update: dict[str, Any]) -> G:
    """The graph with other attributes.

    With LANGGRAPH_STRICT_MSGPACK only the classes that LangGraph has found in the graph's types
    come back from a checkpoint as what they were. ``Pregel.copy`` drops that list, also where
    ``with_config`` calls it (`create_agent` does); then it is made anew.
    """
    made = graph.copy(update)
    if _msgpack.STRICT_MSGPACK_ENABLED:
        allowed, builder = graph._serde_allowlist, getattr(graph, "builder", None)
        if allowed is None and builder is not None:
            allowed = builder.compile()._serde_allowlist
        made._serde_allowlist = allowed
    return made
