"""Asks a question that has an hour to be answered.

Input ``{"user_id"}``, and ``on_expiry``, what is declared for then, ``expires_in`` in place of
the hour; the answer is any value, or, where ``approval`` is true, an approval.
"""

from typing import Any, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Input(TypedDict):
    user_id: str
    on_expiry: NotRequired[Any]
    expires_in: NotRequired[Any]
    approval: NotRequired[bool]


class State(Input):
    answer: NotRequired[Any]


def ask(state: State) -> dict[str, Any]:
    payload: dict[str, Any] = {"ask": "go on?", "expires_in": state.get("expires_in", 3600)}
    if state.get("approval"):
        payload["action_requests"] = [{"name": "go_on", "args": {}}]
    if "on_expiry" in state:
        payload["on_expiry"] = state["on_expiry"]
    return {"answer": interrupt(payload)}


builder = StateGraph(State, input_schema=Input)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
builder.add_edge("ask", END)
graph = builder.compile()
