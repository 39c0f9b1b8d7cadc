"""Trimming long chats: what is kept, what is summed up, and when."""

import asyncio
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from graphs.trimming import before_last_turns, last_turns, trim


class State(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    summary: str


def turn(n: int) -> list[AnyMessage]:
    """A turn with a tool call."""
    call = {"name": "look", "args": {}, "id": f"c{n}"}
    return [
        HumanMessage(f"q{n}", id=f"h{n}"),
        AIMessage("", tool_calls=[call], id=f"t{n}"),
        ToolMessage("r", tool_call_id=f"c{n}", id=f"r{n}"),
        AIMessage(f"a{n}", id=f"a{n}"),
    ]


def chat(turns: int) -> list[AnyMessage]:
    return [SystemMessage("be kind", id="s"), *(m for n in range(turns) for m in turn(n))]


def ids(messages: Any) -> list[str]:
    return [m.id for m in messages]


def test_whole_turns_are_kept_and_the_system_message() -> None:
    """A tool call and its result stay together, whatever the number."""
    messages = chat(5)
    assert ids(last_turns(messages, 2)) == ["s", "h3", "t3", "r3", "a3", "h4", "t4", "r4", "a4"]
    assert ids(before_last_turns(messages, 2)) == ids(messages[1:13])
    assert last_turns(messages, 5) == messages and before_last_turns(messages, 9) == []


def test_a_chat_without_a_person_is_left_alone() -> None:
    """There is no turn to begin with; an empty one neither."""
    alone: list[AnyMessage] = [AIMessage("x", id="1"), SystemMessage("y", id="2")]
    assert last_turns(alone, 1) == alone and last_turns([], 1) == []


@pytest.mark.parametrize("turns", [0, -1])
def test_at_least_one_turn_is_kept(turns: int) -> None:
    """Anything else is a mistake, said when the graph is made."""
    with pytest.raises(ValueError, match="at least one"):
        trim(turns)
    with pytest.raises(ValueError, match="at least one"):
        last_turns([], turns)


def graph(node: Any) -> Any:
    def answer(state: State) -> dict[str, Any]:
        n = int(str(state["messages"][-1].content)[1:])
        return {"messages": turn(n)[1:]}

    builder = StateGraph(State).add_node("answer", answer).add_node("trim", node)
    builder = builder.add_edge(START, "answer").add_edge("answer", "trim").add_edge("trim", END)
    return builder.compile(checkpointer=InMemorySaver())


def talk(compiled: Any, turns: int) -> dict[str, Any]:
    """The state after so many turns, each in a run of its own."""
    config = {"configurable": {"thread_id": "t"}}
    found: dict[str, Any] = {}
    for n in range(turns):
        found = compiled.invoke({"messages": [HumanMessage(f"q{n}", id=f"h{n}")]}, config)
        assert len([m for m in found["messages"] if m.type == "human"]) <= 4
    return found


def test_the_state_stays_short_and_the_summary_remembers() -> None:
    """What goes is handed over once, with the summary so far."""
    handed: list[tuple[list[str], str | None]] = []

    def shorten(old: list[AnyMessage], summary: str | None) -> str:
        handed.append(([m.id or "" for m in old if m.type == "human"], summary))
        return f"{summary or ''}{len(handed)}"

    found = talk(graph(trim(2, summarize=shorten)), 5)
    assert [m.id for m in found["messages"] if m.type == "human"] == ["h3", "h4"]
    assert handed == [(["h0"], None), (["h1"], "1"), (["h2"], "12")]
    assert found["summary"] == "123"


def test_slack_saves_summaries() -> None:
    """With two turns of slack three go at once."""
    handed: list[list[str]] = []

    def shorten(old: list[AnyMessage], summary: str | None) -> str:
        handed.append([m.id or "" for m in old if m.type == "human"])
        return "s"

    talk(graph(trim(2, summarize=shorten, slack=2)), 8)
    assert handed == [["h0", "h1", "h2"], ["h3", "h4", "h5"]]


def test_without_a_summary_nothing_is_written_beside() -> None:
    """The state then needs no field for it."""
    found = talk(graph(trim(1)), 3)
    assert found["messages"][0].id == "h2" and "summary" not in found


def test_an_async_summary_makes_an_async_node() -> None:
    """A model may be asked for it."""

    async def shorten(old: list[AnyMessage], summary: str | None) -> str:
        return f"{len(old)} messages"

    node = trim(1, summarize=shorten)
    found = asyncio.run(node({"messages": chat(3)}))
    assert found["summary"] == "8 messages" and len(found["messages"]) == 8
    assert asyncio.run(node({"messages": chat(1)})) == {}


def test_a_state_object_is_trimmed_too() -> None:
    """Pydantic models and dataclasses have attributes."""

    class Held:
        messages = chat(3)

    assert len(trim(1)(Held())["messages"]) == 8
