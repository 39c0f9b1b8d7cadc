"""Where a checkpoint stands is read off its channels as LangGraph itself would run it."""

import operator
from typing import Annotated, Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from graphs.pending import pending_nodes


class State(TypedDict):
    steps: Annotated[list[str], operator.add]


def step(name: str) -> Any:
    return lambda state: {"steps": [name]}


def graph(defer: bool = False) -> StateGraph[State, None, State, State]:
    """first → a, b+x and two sent to c → last, which waits for a and b+x."""
    builder = StateGraph(State)
    for name in ("first", "a", "b+x", "c"):
        builder.add_node(name, step(name))
    builder.add_node("last", step("last"), defer=defer)
    builder.add_edge(START, "first")
    builder.add_conditional_edges(
        "first",
        lambda _: ["a", "b+x", Send("c", {"steps": []}), Send("c", {"steps": []})],
        ["a", "b+x", "c"],
    )
    builder.add_edge(["a", "b+x"], "last")
    builder.add_edge("c", END)
    builder.add_edge("last", END)
    return builder


@pytest.mark.parametrize("defer", [False, True])
def test_each_checkpoint_stands_where_langgraph_goes_on(defer: bool) -> None:
    """By edges, by tasks that were sent, and behind a join."""
    saver = InMemorySaver()
    compiled = graph(defer).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    compiled.invoke({"steps": []}, config)
    seen = []
    for state in compiled.get_state_history(config):
        found = saver.get_tuple(state.config)
        assert found is not None
        values = found.checkpoint["channel_values"]
        expected = {name for name in state.next if not name.startswith("__")}
        assert pending_nodes(values.keys(), values.__getitem__) == expected
        seen.append(expected)
    assert {"last"} in seen and {"a", "b+x", "c"} in seen and set() in seen
