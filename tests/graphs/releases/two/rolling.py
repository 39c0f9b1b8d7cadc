"""The same graph as its second release has it: ask → check → tell, with one more effect."""

import operator
from typing import Annotated, Any

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect


class Input(TypedDict):
    name: str


class State(Input):
    steps: Annotated[list[str], operator.add]


tell = effect("tell", timeout=shop.TIMEOUT)(shop.post_notification)


def ask(state: State) -> dict[str, Any]:
    return {"steps": [f"asked: {interrupt('go on?')}"]}


def check(state: State) -> dict[str, Any]:
    """Long enough in the way for a worker to die here; some of them ask once more."""
    tell(user_id=state["name"], text="checked")
    if state["name"].startswith("twice"):
        interrupt("really?")
    return {"steps": ["checked"]}


def told(state: State) -> dict[str, Any]:
    tell(user_id=state["name"], text="told")
    return {"steps": ["told"]}


builder = StateGraph(State, input_schema=Input)
builder.add_node("ask", ask)
builder.add_node("check", check)
builder.add_node("told", told)
builder.add_edge(START, "ask")
builder.add_edge("ask", "check")
builder.add_edge("check", "told")
builder.add_edge("told", END)
graph = builder.compile()
