"""Asks a question that has an hour to be answered.

Input ``{"user_id"}``; the answer is any value.
"""

from typing import Any, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Input(TypedDict):
    user_id: str


class State(Input):
    answer: NotRequired[Any]


def ask(state: State) -> dict[str, Any]:
    return {"answer": interrupt({"ask": "go on?", "expires_in": 3600})}


builder = StateGraph(State, input_schema=Input)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
builder.add_edge("ask", END)
graph = builder.compile()
