"""One node that ends its process each time it runs, as a message that can't be served does.

Input ``{"user_id"}``; with the user ``"harmless"`` the node does nothing.
"""

import os
import signal
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict):
    user_id: str


def die(state: State) -> dict[str, Any]:
    if state["user_id"] != "harmless":
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


builder = StateGraph(State)
builder.add_node("die", die)
builder.add_edge(START, "die")
builder.add_edge("die", END)
graph = builder.compile()
