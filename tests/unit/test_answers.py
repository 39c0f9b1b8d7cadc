"""Answers: which fit their question, and the form in which the graph gets them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.answers import Verdict, fitting
from producers.errors import AnswerRefused


def hitl(*allowed: list[str]) -> dict[str, Any]:
    """A HITLRequest with an action per argument."""
    return {
        "action_requests": [{"name": f"tool{n}", "args": {}} for n, _ in enumerate(allowed)],
        "review_configs": [
            {"action_name": f"tool{n}", "allowed_decisions": kinds}
            for n, kinds in enumerate(allowed)
        ],
    }


def old(**flags: bool) -> list[dict[str, Any]]:
    """The older form: a list of HumanInterrupt."""
    return [{"action_request": {"action": "tool", "args": {}}, "config": flags}]


YES_NO = ["approve", "reject"]
APPROVED = {"decisions": [{"type": "approve"}]}
REJECTED = {"decisions": [{"type": "reject"}]}


def refused(kind: str, payload: Any, value: Any, schema: Any = None) -> AnswerRefused:
    with pytest.raises(AnswerRefused) as caught:
        fitting(kind, payload, schema, value)
    assert caught.value.reason == "wrong_shape"
    return caught.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (APPROVED, APPROVED),
        ([{"type": "accept", "args": None}], APPROVED),
        ("approved", APPROVED),
        ("approve", APPROVED),
        (" Approved ", APPROVED),
        (Verdict(True), APPROVED),
        (REJECTED, REJECTED),
        ([{"type": "ignore"}], REJECTED),
        ("rejected", REJECTED),
        ("reject", REJECTED),
        (Verdict(False), REJECTED),
    ],
)
def test_every_form_of_yes_and_no_becomes_decisions(value: Any, expected: Any) -> None:
    """A HITLRequest gets a HITLResponse, whatever was given."""
    assert fitting("approve", hitl(YES_NO), None, value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("approved", [{"type": "accept", "args": None}]),
        (APPROVED, [{"type": "accept", "args": None}]),
        (Verdict(False, "too much"), [{"type": "ignore", "args": "too much"}]),
        ([{"type": "response", "args": "later"}], [{"type": "response", "args": "later"}]),
    ],
)
def test_the_older_question_gets_the_older_answer(value: Any, expected: Any) -> None:
    """A list of HumanInterrupt gets a list of HumanResponse, whatever was given."""
    flags = {"allow_accept": True, "allow_ignore": True, "allow_respond": True}
    assert fitting("approve", old(**flags), None, value) == expected


def test_an_edit_goes_both_ways() -> None:
    """The edited action keeps its name and arguments in either form."""
    edited = {"type": "edit", "edited_action": {"name": "tool", "args": {"n": 1}}}
    older = [{"type": "edit", "args": {"action": "tool", "args": {"n": 1}}}]
    assert fitting("approve", old(allow_edit=True), None, {"decisions": [edited]}) == older
    assert fitting("approve", hitl(["edit"]), None, older) == {"decisions": [edited]}


def test_a_note_goes_into_each_decision() -> None:
    """A verdict is on the whole question."""
    answer = fitting("approve", hitl(YES_NO, YES_NO), None, Verdict(False, "no"))
    assert answer == {"decisions": [{"type": "reject", "message": "no"}] * 2}


@given(st.integers(1, 5), st.integers(0, 5))
def test_there_is_one_decision_per_action(actions: int, decisions: int) -> None:
    """Any other number is refused."""
    question = hitl(*[YES_NO] * actions)
    value = {"decisions": [{"type": "approve"}] * decisions}
    if actions == decisions:
        assert fitting("approve", question, None, value) == value
    else:
        assert f"{actions} action(s)" in refused("approve", question, value).message


def test_only_allowed_decisions_are_taken() -> None:
    """Allowed for one action is not allowed for the other."""
    question = hitl(["approve"], YES_NO)
    fitting("approve", question, None, {"decisions": [{"type": "approve"}, {"type": "reject"}]})
    error = refused("approve", question, "rejected")
    assert "tool0" in error.message and "approve" in error.hint
    refused("approve", old(allow_accept=True), "rejected")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1,
        "yes",
        {},
        [],
        {"type": "approve"},
        {"decisions": "approve"},
        {"decisions": [{}]},
        {"decisions": ["approve"]},
        {"decisions": [{"type": 1}]},
        {"decisions": [{"type": "approve", "message": 1}]},
        {"decisions": [{"type": "respond"}]},
        {"decisions": [{"type": "edit"}]},
        {"decisions": [{"type": "edit", "edited_action": {"name": "x"}}]},
        {"decisions": [{"type": "approve"}], "more": 1},
        [{"type": "approve"}],
        ["accept"],
        [{"type": "edit", "args": "x"}],
        [{"type": "response", "args": 1}],
    ],
)
def test_what_is_no_approval_is_refused(value: Any) -> None:
    """Nothing else is taken for a yes, or for a no."""
    refused("approve", hitl(["approve", "reject", "edit", "respond"]), value)


NAMES = [
    "action_requests",
    "review_configs",
    "action_name",
    "allowed_decisions",
    "name",
    "args",
    "config",
    "action_request",
    "action",
    "decisions",
    "type",
    "message",
    "edited_action",
]
words = st.text() | st.sampled_from(NAMES)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.sampled_from(["accept", "edit"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(json_values, json_values)
def test_no_answer_breaks_the_door(payload: Any, value: Any) -> None:
    """Whatever question and answer look like, the answer fits or is refused."""
    try:
        fitting("approve", payload, None, value)
    except AnswerRefused as error:
        assert error.reason == "wrong_shape"


@given(json_values)
def test_a_value_without_a_schema_passes(value: Any) -> None:
    """A question of kind `value` takes any JSON."""
    assert fitting("value", {"ask": "?"}, None, value) == value


def test_a_value_is_checked_against_the_schema() -> None:
    """The refusal says which part does not fit."""
    schema = {"type": "object", "properties": {"days": {"type": "integer", "minimum": 1}}}
    assert fitting("value", None, schema, {"days": 3}) == {"days": 3}
    assert "days" in refused("value", None, {"days": 0}, schema).message


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "#/$defs/none"}, {"$ref": "http://127.0.0.1:9/x"}]
)
def test_a_broken_schema_checks_nothing(schema: Any) -> None:
    """It is not the answering person's fault, and nothing is fetched from elsewhere."""
    assert fitting("value", None, schema, 1) == 1


def test_an_approval_is_no_value() -> None:
    """--approve on a question for a value is told what to use."""
    assert "--value" in refused("value", None, Verdict(True)).hint


@pytest.mark.parametrize("value", [None, True, "continue", "approve", "approved", Verdict(True)])
def test_a_breakpoint_is_passed_by_a_yes(value: Any) -> None:
    """All of them mean: go on."""
    assert fitting("continue", {"next": ["x"]}, None, value) == "continue"


@pytest.mark.parametrize("value", [False, 1, "no", "rejected", {}, [], Verdict(False)])
def test_a_breakpoint_is_not_passed_by_anything_else(value: Any) -> None:
    """A no can't be acted upon by going on."""
    refused("continue", {"next": ["x"]}, value)
