"""One node that takes all the memory that it gets, for as long as a file exists.

Input ``{"user_id"}``: the path of the file.
"""

from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

#: At a time; each page is written to.
_CHUNK = b"x" * (8 << 20)


class State(TypedDict):
    user_id: str


def eat(state: State) -> dict[str, Any]:
    eaten = []
    while Path(state["user_id"]).exists():
        eaten.append(bytearray(_CHUNK))
    return {}


builder = StateGraph(State)
builder.add_node("eat", eat)
builder.add_edge(START, "eat")
builder.add_edge("eat", END)
graph = builder.compile()
