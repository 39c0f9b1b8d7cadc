"""What is used of LangGraph's streams, and how places and messages are told."""

import functools
import logging
from typing import Annotated, Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels import DeltaChannel
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.pregel import _loop
from typing_extensions import TypedDict

from graphs.chat_messages import conversation, message_data, messages_data
from graphs.chats import messages_channel, text_of
from graphs.stored import SERDE
from workers import streaming
from workers.places import Place


def test_langgraph_has_the_shape_that_we_rely_on() -> None:
    """A contract: where it changes, workers/streaming.py has to be looked at again."""
    streaming.hearable.cache_clear()
    assert streaming.hearable()


def test_another_langgraph_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a warning; the run's config stays what it was."""

    def emit(self: Any, mode: str, values: Any) -> None:
        pass

    monkeypatch.setattr(_loop.PregelLoop, "_emit", emit)
    streaming.hearable.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert not streaming.hearable()
    assert "events lack texts" in caplog.text
    telling = streaming.Telling.__new__(streaming.Telling)
    config = {"configurable": {"thread_id": "A"}}
    assert telling.heard(config, None) is config  # type: ignore[arg-type]
    streaming.hearable.cache_clear()


@pytest.mark.parametrize(
    ("namespace", "place"),
    [
        ("", Place()),
        ("node:t1", Place("node", "", ("t1",))),
        ("outer:t1|inner:t2", Place("inner", "outer", ("t1", "t2"))),
        ("outer:t1|1|inner:t2", Place("inner", "outer", ("t1", "t2"))),
        ("a:t1|b:t2|c:t3", Place("c", "a|b", ("t1", "t2", "t3"))),
        ("remembers|inner:t2", Place("inner", "remembers", ("t2",))),
    ],
)
def test_a_place_is_read_off_a_namespace(namespace: str, place: Place) -> None:
    """Numbers count the calls of one task, and are no nodes."""
    assert Place.of(namespace) == place


def graph_of(schema: Any) -> Any:
    builder = StateGraph(schema).add_node("node", lambda state: {})
    return builder.add_edge(START, "node").compile()


class Several(TypedDict):
    notes: Annotated[list[Any], add_messages]
    messages: Annotated[list[Any], functools.partial(add_messages, format="langchain-openai")]


class Delta(TypedDict):
    talk: Annotated[list[Any], DeltaChannel(_messages_delta_reducer)]


class NoChat(TypedDict):
    messages: list[Any]


@pytest.mark.parametrize(
    ("schema", "channel"),
    [(MessagesState, "messages"), (Several, "messages"), (Delta, "talk"), (NoChat, None)],
)
def test_a_chat_is_known_by_its_reducer(schema: Any, channel: str | None) -> None:
    """Not by a channel's name."""
    assert messages_channel(graph_of(schema)) == channel


def test_messages_are_told_in_plain_words() -> None:
    """Roles, calls of tools with their arguments, results with what they answer."""
    call = {"id": "c1", "name": "book", "args": {"room": 3}}
    said = AIMessage([{"type": "text", "text": "Well"}, {"type": "image", "url": "x"}], id="m")
    said.tool_calls = [call]  # type: ignore[list-item]
    told = message_data(said)
    assert told is not None
    assert (told["role"], told["text"], told["tool_calls"]) == ("assistant", "Well", [call])
    assert told["content"][1]["type"] == "image"
    tool = message_data(ToolMessage("ok", tool_call_id="c1", name="book", id="t"))
    assert tool == {
        "message_id": "t",
        "role": "tool",
        "text": "ok",
        "tool_call_id": "c1",
        "name": "book",
    }


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (HumanMessage("x", id="m"), "user"),
        (AIMessage("half \ud800, NUL \x00", id="m"), "assistant"),
        (AIMessage([{"type": "text", "text": "half \ud800"}], id="m"), "assistant"),
        (SystemMessage("x", id="m"), "system"),
        (AIMessageChunk("x", id="m", name="bob"), "assistant"),
        (ChatMessage("x", id="m", role="critic"), "critic"),
        (FunctionMessage("x", id="m", name="book"), "tool"),
    ],
)
def test_a_message_reads_the_same_live_and_in_a_snapshot(message: Any, role: str) -> None:
    """An event has the object, a snapshot what a checkpoint gives back of it."""
    told = message_data(message)
    assert told is not None and told["role"] == role
    assert told == message_data(SERDE.loads_typed(SERDE.dumps_typed(message)))


def test_text_is_made_harmless() -> None:
    """What JSON and Postgres can't hold is replaced."""
    assert text_of("a\x00b") == "a\ufffdb"
    assert text_of(["a", {"type": "text", "text": "b"}, {"type": "image"}]) == "ab"


@pytest.mark.parametrize(
    ("values", "channel"),
    [
        ({"messages": [{"type": "human", "content": "x"}], "n": 1}, "messages"),
        ({"talk": [{"type": "chat", "role": "critic", "content": "x"}], "n": [1]}, "talk"),
        ({"messages": [1, 2]}, ""),
        ({"n": [], "messages": []}, "messages"),
    ],
)
def test_a_conversation_is_known_by_what_it_holds(values: dict[str, Any], channel: str) -> None:
    """Snapshots and pages of a chat have the state alone, whatever its graph calls it."""
    assert conversation(values) == channel


def test_messages_stored_without_an_id_go_by_their_place() -> None:
    """Two of them are two; none goes by null."""
    stored = [{"role": "assistant", "content": "a"}, {"type": "remove", "id": "x"}, AIMessage("b")]
    names = [d.get("message_id") for d in messages_data([*stored, AIMessage("c", id="i")], "t")]
    assert names == ["t:0", None, "t:2", "i"]
