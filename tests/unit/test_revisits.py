"""The contract with LangGraph that revisited subgraphs rely on."""

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from workers import revisits


class Notes(TypedDict):
    note: str
    seen: Annotated[list[str], operator.add]


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Crash(Exception):
    """The process dies here."""


def graph(before: list[str], after: list[str]) -> Any:
    """A node that visits a subgraph with a history, and crashes before or after as told."""
    inner = StateGraph(Notes)
    inner.add_node("remember", lambda state: {"seen": [state["note"]]})
    inner.add_edge(START, "remember")
    memory = inner.compile(checkpointer=True)

    def visit(state: State) -> State:
        if before:
            raise Crash(before.pop())
        seen = memory.invoke({"note": state["log"][-1]})["seen"]
        if after:
            raise Crash(after.pop())
        return {"log": ["+".join(seen)]}

    outer = StateGraph(State)
    outer.add_node("visit", visit)
    outer.add_edge(START, "visit")
    return outer.compile(checkpointer=InMemorySaver())


def test_the_installed_langgraph_can_be_patched() -> None:
    """LangGraph's loop has the shape that the patch was written for."""
    assert revisits.patchable()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_visit_that_a_crash_interrupts_counts_once(when: str) -> None:
    """Not begun, it gets its input; begun, it is not begun again."""
    revisits.install()
    crashes: dict[str, list[str]] = {"before": [], "after": []}
    made = graph(**crashes)
    config: Any = {"configurable": {"thread_id": "1"}}
    made.invoke({"log": ["a"]}, config)
    crashes[when].append("crash")
    with pytest.raises(Crash):
        made.invoke({"log": ["b"]}, config)
    assert made.invoke(None, config)["log"] == ["a", "a", "b", "a+b"]
