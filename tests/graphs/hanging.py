"""One node that does not return, the first time that it runs for a thread.

Input ``{"user_id"}``: the path of a file that the node makes when it begins to hang.
"""

import time
from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict):
    user_id: str


def hang(state: State) -> dict[str, Any]:
    begun = Path(state["user_id"])
    if not begun.exists():
        begun.touch()
        while True:
            time.sleep(0.01)
    return {}


builder = StateGraph(State)
builder.add_node("hang", hang)
builder.add_edge(START, "hang")
builder.add_edge("hang", END)
graph = builder.compile()
