"""Questions out of interrupted graphs, and what counts as a decision."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from graphs.questions import Decision, Question, is_approval, normalise_decision, questions_of
from producers.answers import WORDS

CONFIG: Any = {"configurable": {"thread_id": "t"}}
REQUEST = {
    "action_requests": [{"name": "refund", "args": {"amount": "5"}, "description": "Refund?"}],
    "review_configs": [{"action_name": "refund", "allowed_decisions": ["approve", "reject"]}],
}
LEGACY = [{"action_request": {"action": "refund", "args": {}}, "config": {"allow_accept": True}}]


class State(TypedDict, total=False):
    n: int


def asked(*values: Any, schema: Any = None) -> list[Question]:
    """What a graph asks that interrupts once per value, side by side."""

    def ask(state: Any) -> State:
        interrupt(state["value"], response_schema=schema)
        return {}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_conditional_edges(
        START, lambda s: [Send("ask", {"value": v}) for v in values], ["ask"]
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({}, CONFIG)
    return questions_of(graph.get_state(CONFIG))


def test_a_hitl_request_is_an_approval_in_both_its_forms() -> None:
    """Recognised by its shape."""
    for payload in (REQUEST, LEGACY):
        (question,) = asked(payload)
        assert (question.kind, question.payload) == ("approve", payload)


@pytest.mark.parametrize("kind", ["clarify", "select_room", "v2", "a" * 40])
def test_a_payload_may_name_its_kind(kind: str) -> None:
    """By a plain word of its own."""
    (question,) = asked({"kind": kind, "message": "which?"})
    assert (question.kind, question.payload["message"]) == (kind, "which?")


@pytest.mark.parametrize(
    "kind",
    [
        *("", "Clarify", "two words", "1st", "a-b", "房间", 7, None, ["clarify"], "a" * 41),
        *("approve", "continue", "value", "clarify\n"),
    ],
)
def test_what_is_no_plain_word_names_no_kind(kind: Any) -> None:
    """Nor do the kinds that a payload's shape tells: nobody approves what is no request."""
    (question,) = asked({"kind": kind})
    assert question.kind == "value"


def test_an_approval_keeps_its_kind() -> None:
    """Whatever word it brings along."""
    (question,) = asked({**REQUEST, "kind": "confirm"})
    assert question.kind == "approve"


@pytest.mark.parametrize(
    "payload",
    ["go on?", {}, [], None, 7, {"action_requests": []}, {"action_requests": [{"args": {}}]}, [{}]],
)
def test_anything_else_asks_for_a_value(payload: Any) -> None:
    """Shapes that only look like an approval too."""
    (question,) = asked(payload)
    assert (question.kind, question.payload) == ("value", payload)


def test_questions_side_by_side_have_ids_of_their_own_that_answer_them() -> None:
    """Each by its own id, in any order."""
    one, two = asked("a", "b")
    assert (one.payload, two.payload) == ("a", "b")
    assert one.question_id != two.question_id


def test_payloads_become_plain_json() -> None:
    """Whatever the graph put in; NUL and NaN too, which tables and pages refuse."""

    @dataclass
    class Line:
        price: Decimal

    class Offer(BaseModel):
        lines: list[Line]
        at: datetime

    offer = Offer(lines=[Line(Decimal("1.50"))], at=datetime(2026, 1, 2, tzinfo=UTC))
    (question,) = asked({"offer": offer, "text": "a\x00", "x": float("nan"), 1: "one"})
    assert question.payload["offer"] == {
        "lines": [{"price": "1.50"}],
        "at": "2026-01-02T00:00:00+00:00",
    }
    assert question.payload["text"] == "a\ufffd"
    assert question.payload["x"] is None
    assert question.payload["1"] == "one"


def test_a_response_schema_is_json_schema() -> None:
    """From a dict or a type."""

    class Choice(BaseModel):
        option: int

    (given_dict,) = asked("?", schema={"type": "integer"})
    (given_type,) = asked("?", schema=Choice)
    assert given_dict.response_schema == {"type": "integer"}
    assert given_type.response_schema is not None
    assert given_type.response_schema["required"] == ["option"]


@pytest.mark.parametrize(
    ("said", "seconds"),
    [(60, 60), (0.5, 0.5), (-1, None), (True, None), ("1h", None), (1e12, None)],
)
def test_a_payload_may_say_when_it_expires(said: Any, seconds: float | None) -> None:
    """``expires_in`` in seconds; nonsense never expires."""
    (question,) = asked({"ask": "?", "expires_in": said})
    assert question.expires_in == seconds


def test_a_static_breakpoint_asks_to_continue_from_this_checkpoint() -> None:
    """Its id is the checkpoint's, so an old answer passes nothing."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("one", lambda s: {"n": 1})
    builder.add_edge(START, "one")
    graph = builder.compile(checkpointer=InMemorySaver(), interrupt_before=["one"])
    graph.invoke({"n": 0}, CONFIG)
    state = graph.get_state(CONFIG)
    (question,) = questions_of(state)
    assert question == Question(
        state.config["configurable"]["checkpoint_id"], "continue", {"next": ["one"]}
    )
    assert question.row()["expires_in"] is None
    graph.invoke(None, CONFIG)
    assert questions_of(graph.get_state(CONFIG)) == []


def test_an_answered_question_is_no_longer_asked() -> None:
    """Only the open ones of several."""

    def ask(state: Any) -> State:
        interrupt("first")
        interrupt("second")
        return {}

    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"n": 0}, CONFIG)
    (first,) = questions_of(graph.get_state(CONFIG))
    graph.invoke(Command(resume={first.question_id: 1}), CONFIG)
    (second,) = questions_of(graph.get_state(CONFIG))
    assert (first.payload, second.payload) == ("first", "second")
    assert first.question_id != second.question_id


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("approved", Decision(True)),
        ("approve", Decision(True)),
        ("Rejected ", Decision(False)),
        ("reject", Decision(False)),
        ({"decisions": [{"type": "approve"}]}, Decision(True)),
        ({"decisions": [{"type": "reject", "message": " no "}]}, Decision(False, "no")),
        ({"decisions": [{"type": "approve"}, {"type": "reject"}]}, Decision(False)),
        ({"type": "approve"}, Decision(True)),
        ([{"type": "accept", "args": None}], Decision(True)),
        ([{"type": "ignore", "args": None}], Decision(False)),
        ([{"type": "response", "args": "why?"}], Decision(False, "why?")),
        ({"decisions": [{"type": "edit", "edited_action": {}}]}, Decision(False)),
    ],
)
def test_decisions_in_each_accepted_form(answer: Any, decision: Decision) -> None:
    """An edit is no approval of what was asked."""
    assert normalise_decision(answer) == decision


@pytest.mark.parametrize(("word", "approved"), WORDS.items())
def test_words_mean_what_they_mean_at_the_door(word: str, approved: bool) -> None:
    """A graph may ask for a plain word, which then comes as it was given."""
    assert normalise_decision(word) == Decision(approved)
    assert normalise_decision([{"type": word}]) == Decision(approved)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
    )
)
def test_nothing_else_is_taken_for_an_approval(answer: Any) -> None:
    """ValueError, or no approval; never another exception."""
    try:
        decision = normalise_decision(answer)
    except ValueError:
        return
    assert not decision.approved or "approv" in repr(answer).lower() or "accept" in repr(answer)


def test_is_approval_needs_names() -> None:
    """An action that can't be shown is not asked as one."""
    assert is_approval(REQUEST)
    assert is_approval(LEGACY)
    assert is_approval(LEGACY[0])
    assert not is_approval({"action_requests": [{"name": 1}]})
