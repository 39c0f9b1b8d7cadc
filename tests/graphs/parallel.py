"""Parallel nodes with effects: one notification per name in the input, all in one superstep.

Input ``{"names": [...]}``; ``told`` ends with each name once. Two fixed nodes run beside the
fan-out, so that both kinds of parallel tasks are there.
"""

import operator
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect


class Input(TypedDict):
    names: list[str]


class State(Input):
    told: Annotated[list[str], operator.add]


class Task(TypedDict):
    name: str


tell = effect("tell", timeout=shop.TIMEOUT)(shop.post_notification)


def fan_out(state: State) -> list[Any]:
    return ["left", "right", *(Send("each", {"name": name}) for name in state["names"])]


def each(state: Task) -> dict[str, Any]:
    tell(user_id=state["name"], text="hello")
    return {"told": [state["name"]]}


def left(state: State) -> dict[str, Any]:
    tell(user_id="left", text="hello")
    return {"told": ["left"]}


def right(state: State) -> dict[str, Any]:
    tell(user_id="right", text="hello")
    return {"told": ["right"]}


builder = StateGraph(State, input_schema=Input)
builder.add_node("each", each, input_schema=Task)
builder.add_node("left", left)
builder.add_node("right", right)
for name in ("each", "left", "right"):
    builder.add_edge(name, END)
builder.add_conditional_edges(START, fan_out, ["each", "left", "right"])
graph = builder.compile()
