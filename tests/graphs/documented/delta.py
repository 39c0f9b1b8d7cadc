"""A chat whose history is kept as differences: DeltaChannel (LangGraph docs, "Graph API")."""

from collections.abc import Sequence
from typing import Annotated, Any

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


def extend(before: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*before, *(line for write in writes for line in write)]


class State(TypedDict):
    lines: Annotated[list[str], DeltaChannel(extend, snapshot_frequency=3)]


def reply(state: State) -> dict[str, Any]:
    return {"lines": [model.invoke(state["lines"][-1]).text]}


def sign(state: State) -> dict[str, Any]:
    return {"lines": [f"({len(state['lines'])} lines)"]}


builder = StateGraph(State)
builder.add_node(reply)
builder.add_node(sign)
builder.add_edge(START, "reply")
builder.add_edge("reply", "sign")
graph = builder.compile()
