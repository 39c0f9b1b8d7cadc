"""Work that goes wrong in ways which a person puts right.

Input ``{"names": [...]}``: one notification for each. ``steps`` says which nodes ran.
``many`` has its two nodes side by side, ``asks`` waits for a person at two nodes at once,
``stops`` has a static breakpoint. A node fails for good while its name is in ``broken``.
"""

import operator
from typing import Annotated, Any, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect


class Input(TypedDict):
    names: list[str]


class State(Input):
    broken: NotRequired[list[str]]
    steps: Annotated[list[str], operator.add]


tell = effect("tell", timeout=shop.TIMEOUT)(shop.post_notification)


def first(state: State) -> dict[str, Any]:
    return {"steps": ["first"]}


def told(state: State) -> dict[str, Any]:
    for name in state["names"]:
        tell(user_id=name, text="told")
    if "told" in state.get("broken", []):
        raise ValueError("told is broken")
    return {"steps": ["told"]}


def checked(state: State) -> dict[str, Any]:
    if "checked" in state.get("broken", []):
        raise ValueError("checked is broken")
    return {"steps": ["checked"]}


def last(state: State) -> dict[str, Any]:
    return {"steps": ["last"]}


def left(state: State) -> dict[str, Any]:
    return {"steps": [f"left {interrupt('left?')}"]}


def right(state: State) -> dict[str, Any]:
    return {"steps": [f"right {interrupt('right?')}"]}


def _sequence() -> StateGraph[State, None, State, State]:
    builder = StateGraph(State)
    for node in (first, told, checked, last):
        builder.add_node(node)
    builder.add_edge(START, "first")
    builder.add_edge("first", "told")
    builder.add_edge("told", "checked")
    builder.add_edge("checked", "last")
    builder.add_edge("last", END)
    return builder


def _side_by_side(*nodes: Any) -> StateGraph[State, None, State, State]:
    builder = StateGraph(State)
    for node in (first, *nodes, last):
        builder.add_node(node)
    builder.add_edge(START, "first")
    for node in nodes:
        builder.add_edge("first", node.__name__)
    builder.add_edge([node.__name__ for node in nodes], "last")
    builder.add_edge("last", END)
    return builder


sequence = _sequence().compile()
many = _side_by_side(told, checked).compile()
asks = _side_by_side(left, right).compile()
stops = _sequence().compile(interrupt_before=["last"])


def _nested() -> StateGraph[State, None, State, State]:
    """first → inner (asked → checked) → last; asked waits for a person."""
    inner = StateGraph(State)
    inner.add_node("asked", left)
    inner.add_node("checked", checked)
    inner.add_edge(START, "asked")
    inner.add_edge("asked", "checked")
    builder = StateGraph(State)
    builder.add_node(first)
    builder.add_node("inner", inner.compile())
    builder.add_node(last)
    builder.add_edge(START, "first")
    builder.add_edge("first", "inner")
    builder.add_edge("inner", "last")
    builder.add_edge("last", END)
    return builder


nested = _nested().compile()
