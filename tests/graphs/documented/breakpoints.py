"""Stops before one node and after another, by declaration (LangGraph docs, "Interrupts")."""

import operator
from itertools import pairwise
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def step(name: str):
    return lambda state: {"log": [name]}


builder = StateGraph(State)
for name in ("one", "two", "three", "four"):
    builder.add_node(name, step(name))
for one, other in pairwise([START, "one", "two", "three", "four", END]):
    builder.add_edge(one, other)
graph = builder.compile(interrupt_before=["two"], interrupt_after=["three"])
