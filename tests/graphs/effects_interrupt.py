"""One node: effect → interrupt → effect. Each is to happen once, however often it runs.

Input ``{"user_id"}``; the question's payload is ``"go on?"``, the answer any value.
"""

from typing import Any, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect


class Input(TypedDict):
    user_id: str


class State(Input):
    answer: NotRequired[Any]


tell = effect("tell", timeout=shop.TIMEOUT)(shop.post_notification)


def ask(state: State) -> dict[str, Any]:
    tell(user_id=state["user_id"], text="before")
    answer = interrupt("go on?")
    tell(user_id=state["user_id"], text=f"after {answer}")
    return {"answer": answer}


builder = StateGraph(State, input_schema=Input)
builder.add_node("ask", ask)
builder.add_edge(START, "ask")
builder.add_edge("ask", END)
graph = builder.compile()
