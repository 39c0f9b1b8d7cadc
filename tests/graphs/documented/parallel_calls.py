"""Parallel branches that meet again (LangGraph docs, "Workflows and agents")."""

import operator
from typing import Annotated, NotRequired

from langgraph.graph import END, START, StateGraph
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


class State(TypedDict):
    topic: str
    parts: Annotated[list[str], operator.add]
    combined: NotRequired[str]


def writer(kind: str):
    def write(state: State) -> dict[str, list[str]]:
        return {"parts": [model.invoke(f"a {kind} about {state['topic']}").text]}

    return write


def aggregate(state: State) -> dict[str, str]:
    return {"combined": " / ".join(state["parts"])}


def make_graph():
    builder = StateGraph(State)
    for kind in ("joke", "story", "poem"):
        builder.add_node(kind, writer(kind))
        builder.add_edge(START, kind)
    builder.add_node("aggregate", aggregate, defer=True)
    builder.add_edge(["joke", "story", "poem"], "aggregate")
    builder.add_edge("aggregate", END)
    return builder
