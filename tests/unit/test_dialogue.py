"""Histories as models take them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolCall, ToolMessage

from graphs.dialogue import UNDONE, repaired


def calls(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[ToolCall(name="find", args={}, id=i) for i in ids])


def shape(messages: list[AnyMessage]) -> list[str]:
    return [f"{m.type}:{getattr(m, 'tool_call_id', '')}" for m in messages]


def test_a_history_that_is_whole_stays_as_it_is() -> None:
    """Message by message the same."""
    whole = [HumanMessage("a"), calls("1", "2"), ToolMessage("x", tool_call_id="1")]
    whole += [ToolMessage("y", tool_call_id="2"), AIMessage("b")]
    assert all(a is b for a, b in zip(repaired(whole), whole, strict=True))


def test_a_call_without_a_result_gets_one() -> None:
    """An error, by the tool's name, right behind the call."""
    found = repaired([calls("1", "2"), ToolMessage("y", tool_call_id="2"), HumanMessage("?")])
    assert shape(found) == ["ai:", "tool:1", "tool:2", "human:"]
    made: Any = found[1]
    assert (made.content, made.status, made.name) == (UNDONE, "error", "find")


def test_results_move_to_their_calls_and_strays_go() -> None:
    """Also past what a person has said between, and a second result of one call."""
    found = repaired(
        [
            ToolMessage("stray", tool_call_id="0"),
            calls("1"),
            HumanMessage("?"),
            ToolMessage("x", tool_call_id="1"),
            ToolMessage("again", tool_call_id="1"),
        ]
    )
    assert shape(found) == ["ai:", "tool:1", "human:"]
    assert found[1].content == "x"


def test_calls_that_could_not_be_read_have_results_too() -> None:
    """Providers count them among the calls."""
    bad: Any = {"name": "find", "args": "{", "id": "9", "error": None, "type": "invalid_tool_call"}
    assert shape(repaired([AIMessage("", invalid_tool_calls=[bad])])) == ["ai:", "tool:9"]


@given(st.lists(st.sampled_from(["h", "a", "c1", "c2", "c12", "r1", "r2"])))
def test_whatever_was_lost_the_history_is_whole(parts: list[str]) -> None:
    """Each call followed by its results, no result without a call, all else in order; and a
    second repair changes nothing."""
    made: dict[str, Any] = {
        **{"h": HumanMessage("h"), "a": AIMessage("a"), "c1": calls("1"), "c2": calls("2")},
        **{"c12": calls("1", "2"), "r1": ToolMessage("x", tool_call_id="1")},
        "r2": ToolMessage("y", tool_call_id="2"),
    }
    messages: list[Any] = [made[part] for part in parts]
    found = repaired(messages)
    rest = list(found)
    while rest:
        message = rest.pop(0)
        assert not isinstance(message, ToolMessage)
        for call in getattr(message, "tool_calls", []):
            result: Any = rest.pop(0)
            assert result.tool_call_id == call["id"]
    assert [m for m in found if m.type != "tool"] == [m for m in messages if m.type != "tool"]
    assert shape(repaired(found)) == shape(found)
