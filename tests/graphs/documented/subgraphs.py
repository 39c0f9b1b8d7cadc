"""Subgraphs in all checkpointer modes, one with a question (LangGraph docs, "Subgraphs")."""

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Inner(TypedDict):
    note: str
    seen: Annotated[list[str], operator.add]


def step(name: str):
    return lambda state: {"log": [name]}


def chain(*names: str, **options):
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, step(name))
    for one, other in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(one, other)
    return builder.compile(**options)


def ask(state: State) -> dict[str, list[str]]:
    return {"log": [f"heard {interrupt('which?')}"]}


def asking(**options):
    builder = StateGraph(State)
    builder.add_node("before", step("before"))
    builder.add_node("ask", ask)
    builder.add_edge(START, "before")
    builder.add_edge("before", "ask")
    builder.add_edge("ask", END)
    return builder.compile(**options)


def remember(state: Inner) -> dict[str, list[str]]:
    return {"seen": [state["note"]]}


memory = StateGraph(Inner)
memory.add_node("remember", remember)
memory.add_edge(START, "remember")
memory.add_edge("remember", END)
# Its history is the thread's own: it remembers from one visit to the next.
remembering = memory.compile(checkpointer=True)


def visit(state: State) -> dict[str, list[str]]:
    seen = remembering.invoke({"note": f"visit at {len(state['log'])}"})["seen"]
    return {"log": [f"remembers {len(seen)}"]}


builder = StateGraph(State)
builder.add_node("inherits", chain("i1", "i2"))
builder.add_node("forgets", chain("f1", "f2", checkpointer=False))
builder.add_node("visit", visit)
builder.add_node("asks", asking())
builder.add_node("again", visit)
builder.add_edge(START, "inherits")
builder.add_edge("inherits", "forgets")
builder.add_edge("forgets", "visit")
builder.add_edge("visit", "asks")
builder.add_edge("asks", "again")
builder.add_edge("again", END)
graph = builder.compile()
