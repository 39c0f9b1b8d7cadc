"""One node that forks a process and then dies, the first time that it runs for a thread.

Input ``{"user_id"}``: the path of a file into which the forked process writes its id. It
lives on until it is killed, with all that it has inherited.
"""

import os
import signal
from pathlib import Path
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict):
    user_id: str


def fork(state: State) -> dict[str, Any]:
    begun = Path(state["user_id"])
    if not begun.exists():
        child = os.fork()
        if child == 0:
            while True:
                signal.pause()
        begun.write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)
    return {}


builder = StateGraph(State)
builder.add_node("fork", fork)
builder.add_edge(START, "fork")
builder.add_edge("fork", END)
graph = builder.compile()
