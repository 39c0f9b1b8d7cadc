"""The JSON Schema that a graph's input is held to at the doors.

LangGraph's own is made from type hints, and stricter than LangGraph itself: it wants every
key of the state, though a run may start with any of them; messages as they are stored,
though they may be given in short, as ``{"role": "user", "content": "hi"}``; and what a value
is, where its reducer may take something else (one document for a list of them). A graph that
runs anywhere has to run here too, so these are loosened.
"""

import operator
from typing import Any

from langgraph.channels import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from typing_extensions import is_typeddict

from graphs.loading import Graph

#: Reducers that take what they make.
_PLAIN = (operator.add, operator.or_, operator.and_, operator.mul, max, min)
_MESSAGES = frozenset({"HumanMessage", "AIMessage", "SystemMessage", "ToolMessage"})


def input_schema(graph: Graph) -> dict[str, Any]:
    """JSON Schema of what may be submitted. Raises whatever pydantic has against the types."""
    schema: dict[str, Any] = dict(graph.get_input_jsonschema())
    builder = getattr(graph, "builder", None)
    # An input schema of its own says what it needs; a state says what there may be.
    given: Any = getattr(builder, "input_schema", None)
    if (
        given is not None
        and given is getattr(builder, "state_schema", None)
        and is_typeddict(given)
    ):
        schema.pop("required", None)
    definitions = schema.get("$defs", {})
    properties = {
        name: {} if _takes_more(graph, name) or _mentions(value, definitions, set()) else value
        for name, value in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


def _takes_more(graph: Graph, name: str) -> bool:
    """Whether only a reducer of the graph's own knows what may be given for this value."""
    channel = graph.channels.get(name)
    if isinstance(channel, BinaryOperatorAggregate):
        return channel.operator not in _PLAIN
    return isinstance(channel, DeltaChannel)


def _mentions(value: Any, definitions: dict[str, Any], seen: set[str]) -> bool:
    """Whether a schema, through its references, is about messages."""
    if isinstance(value, list):
        return any(_mentions(item, definitions, seen) for item in value)
    if not isinstance(value, dict):
        return False
    reference = value.get("$ref")
    if isinstance(reference, str) and (name := reference.rpartition("/")[2]) not in seen:
        seen.add(name)
        if name in _MESSAGES or _mentions(definitions.get(name), definitions, seen):
            return True
    return any(_mentions(item, definitions, seen) for item in value.values())
