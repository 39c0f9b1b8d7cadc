"""Two branches that ask at once, each answered on its own (LangGraph docs, "Interrupts")."""

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict):
    said: Annotated[list[str], operator.add]


def asker(name: str):
    def ask(state: State) -> dict[str, list[str]]:
        return {"said": [f"{name}: {interrupt({'from': name})}"]}

    return ask


def gather(state: State) -> dict[str, list[str]]:
    return {"said": [f"{len(state['said'])} answers"]}


builder = StateGraph(State)
for name in ("a", "b"):
    builder.add_node(name, asker(name))
    builder.add_edge(START, name)
builder.add_node("aside", lambda state: {"said": ["aside"]})
builder.add_edge(START, "aside")
builder.add_node(gather)
builder.add_edge(["a", "b", "aside"], "gather")
builder.add_edge("gather", END)
graph = builder.compile()
