"""Answers and resolutions at the door: each fits its question or is told why not."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from producers import (
    AnswerRefused,
    Fleet,
    MessageConflict,
    NotInDoubt,
    QuestionOpen,
    UnknownThread,
)
from producers.answers import Verdict
from tests.harness import Database
from tests.integration.mailbox import INPUT, accepted, ask, refused, settle


@pytest.fixture
def asked(fleet: Fleet, database: Database) -> str:
    """A thread with one open approval, q1."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    ask(database, thread, "q1")
    return thread


@pytest.mark.parametrize("question", ["q1", None])
@pytest.mark.parametrize(
    "value",
    ["approved", {"decisions": [{"type": "approve"}]}, [{"type": "accept"}], Verdict(True)],
)
def test_an_answer_is_accepted_in_the_questions_form(
    fleet: Fleet, database: Database, asked: str, question: str | None, value: Any
) -> None:
    """With the question's id, or without it when only one is open."""
    receipt = fleet.answer(asked, question, value, answered_by="ann")
    assert (receipt.seq, receipt.outcome, receipt.published) == (2, "accepted", True)
    decisions = {"decisions": [{"type": "approve"}]}
    assert database.fetch("SELECT status, answer, answered_by FROM fleet.questions") == [
        ("answered", decisions, "ann")
    ]
    payload = database.value("SELECT payload FROM fleet.messages WHERE kind = 'answer'")
    assert payload == {"question_id": "q1", "value": decisions}


def test_a_question_as_status_shows_it_is_not_looked_up_once_more(
    fleet: Fleet, database: Database, asked: str
) -> None:
    """It is judged all the same: by its shape, its thread and whether it is still open."""
    question = fleet.status(asked).question
    assert question is not None
    assert refused(lambda: fleet.answer(asked, question, {"no": "approval"})).reason == (
        "wrong_shape"
    )
    other = fleet.submit("refund", "A2", INPUT).thread_id
    assert refused(lambda: fleet.answer(other, question, "approved")).reason == "no_question"
    with pytest.raises(UnknownThread):
        fleet.answer("refund:A3", question, "approved")
    assert accepted(database) == 2
    receipt = fleet.answer(asked, question_id=question, value="approved", message_id="m")
    assert receipt.outcome == "accepted"
    assert fleet.answer(asked, question, Verdict(True), message_id="m").outcome == "duplicate"
    refusal = refused(lambda: fleet.answer(asked, question, "rejected"))
    assert refusal.reason == "already_answered"
    payload = database.value("SELECT payload FROM fleet.messages WHERE kind = 'answer'")
    assert payload == {"question_id": "q1", "value": {"decisions": [{"type": "approve"}]}}


def test_the_same_answer_sent_again_gets_the_same_receipt(fleet: Fleet, asked: str) -> None:
    """By its message_id, with or without the question's id, in any form."""
    first = fleet.answer(asked, None, "approved", message_id="m")
    for question, value in ((None, "approve"), ("q1", Verdict(True))):
        again = fleet.answer(asked, question, value, message_id="m")
        assert (again.outcome, again.seq) == ("duplicate", first.seq)
    with pytest.raises(MessageConflict):
        fleet.answer(asked, None, "rejected", message_id="m")


def test_a_second_answer_is_told_of_the_first(fleet: Fleet, asked: str) -> None:
    """A double click, by anybody, also when both click at once."""
    with ThreadPoolExecutor(2) as pool:
        first, second = (
            pool.submit(fleet.answer, asked, "q1", value, answered_by="ann")
            for value in ("approved", "rejected")
        )
    errors = [f.exception() for f in (first, second) if f.exception()]
    assert len(errors) == 1 and isinstance(errors[0], AnswerRefused)
    assert errors[0].reason == "already_answered" and "ann" in errors[0].message
    assert refused(lambda: fleet.answer(asked, None, "approved")).reason == "already_answered"


def test_an_answer_to_nothing_is_refused(fleet: Fleet, database: Database) -> None:
    """A thread that asks nothing is told apart from one that has ended."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    assert refused(lambda: fleet.answer(thread, None, "approved")).reason == "no_question"
    assert refused(lambda: fleet.answer(thread, "q9", "approved")).reason == "no_question"
    settle(database, thread, "done")
    assert refused(lambda: fleet.answer(thread, None, "approved")).reason == "finished"
    assert refused(lambda: fleet.answer(thread, "q9", "approved")).reason == "finished"
    assert accepted(database) == 1


def test_an_answer_to_an_older_question_is_refused(
    fleet: Fleet, database: Database, asked: str
) -> None:
    """It is never given to the question that is open now."""
    database.fetch("UPDATE fleet.questions SET status = 'superseded'")
    ask(database, asked, "q2")
    for question in ("q1", "q0"):
        error = refused(lambda question=question: fleet.answer(asked, question, "approved"))
        assert error.reason == "stale_question" and error.data["open"] == ["q2"]
    assert database.value("SELECT status FROM fleet.questions WHERE question_id = 'q2'") == "open"


def test_an_expired_question_takes_no_answer(fleet: Fleet, database: Database, asked: str) -> None:
    """Whether or not the sweeper has noticed yet."""
    database.fetch("UPDATE fleet.questions SET expires_at = fleet.now() - interval '1 s'")
    assert refused(lambda: fleet.answer(asked, "q1", "approved")).reason == "expired"
    database.fetch("UPDATE fleet.questions SET status = 'expired'")
    assert refused(lambda: fleet.answer(asked, "q1", "approved")).reason == "expired"
    assert refused(lambda: fleet.answer(asked, None, "approved")).reason == "expired"


def test_an_answer_of_the_wrong_shape_leaves_the_question_open(
    fleet: Fleet, database: Database, asked: str
) -> None:
    """Refused at the door, and a good one is taken afterwards."""
    two = {"decisions": [{"type": "approve"}] * 2}
    for value in ("maybe", two, {"decisions": [{"type": "edit"}]}, None):
        error = refused(lambda value=value: fleet.answer(asked, "q1", value))
        assert error.reason == "wrong_shape" and error.data["question_id"] == "q1"
    assert database.value("SELECT status FROM fleet.questions") == "open"
    assert fleet.answer(asked, "q1", "approved").outcome == "accepted"


def test_a_value_is_checked_against_the_questions_schema(fleet: Fleet, database: Database) -> None:
    """A question for a value says what it takes."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    schema = {"type": "object", "required": ["days"], "properties": {"days": {"type": "integer"}}}
    ask(database, thread, "q1", kind="value", payload={"ask": "how long?"}, schema=schema)
    assert refused(lambda: fleet.answer(thread, "q1", {"days": "x"})).reason == "wrong_shape"
    fleet.answer(thread, "q1", {"days": 3})
    assert database.value("SELECT answer FROM fleet.questions") == {"days": 3}


def test_of_several_questions_one_is_named(fleet: Fleet, database: Database, asked: str) -> None:
    """Never guessed which one was meant."""
    ask(database, asked, "q2")
    assert refused(lambda: fleet.answer(asked, None, "approved")).data["open"] == ["q1", "q2"]
    fleet.answer(asked, "q2", "approved")
    found = "SELECT question_id, status FROM fleet.questions ORDER BY question_id"
    assert database.fetch(found) == [("q1", "open"), ("q2", "answered")]


def test_input_over_an_open_question_is_refused(
    fleet: Fleet, database: Database, asked: str
) -> None:
    """It would discard the question."""
    with pytest.raises(QuestionOpen, match="q1"):
        fleet.send(asked, {"text": "hello"})
    assert accepted(database) == 1


def test_only_what_is_in_doubt_can_be_resolved(fleet: Fleet, database: Database) -> None:
    """An effect without a result, of a thread that stopped for it; a call under way is not."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    with pytest.raises(NotInDoubt):
        fleet.resolve(thread, "r1", True, {"refund_id": "x"})
    database.fetch(
        """INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
            args_hash, attempts, epoch, first_started_at, started_at)
        VALUES (%s, 'r1', 1, 1, 'pay', 'park', 'intent', 'h', 1, 1, now(), now())""",
        thread,
    )
    with pytest.raises(NotInDoubt):
        fleet.resolve(thread, "r1", True, {"refund_id": "x"})
    database.fetch("UPDATE fleet.threads SET status = 'in_doubt'")
    assert fleet.resolve(thread, "r1", True, {"refund_id": "x"}).seq == 2
    payload = database.value("SELECT payload FROM fleet.messages WHERE kind = 'resolve'")
    assert payload == {"request_id": "r1", "happened": True, "result": {"refund_id": "x"}}
    with pytest.raises(NotInDoubt):
        fleet.resolve(thread, "r1", False)
