"""What becomes of a question that nobody answers in time: as its graph has declared."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.settings import get_settings
from producers import AnswerRefused, Fleet
from tests.harness import ROOT, Database
from tests.integration.mailbox import APPROVE, accepted, ask, refused
from workers.drain import drain
from workers.slot import Slot
from workers.sweeper import Sweeper

HOUR = "3600 s"


@pytest.fixture
def graphs_file(settings_env: None, database: Database) -> Path:
    file = ROOT / "tests" / "graphs" / "langgraph.json"
    database.register(file)
    return file


@pytest.fixture
def sweeper(settings_env: None) -> Iterator[Sweeper]:
    made = Sweeper(get_settings(), "w@test", ["fleet"], 2, "prefork")
    yield made
    made.session.drop()


def asked(fleet: Fleet, slot: Slot, key: str = "A", **declared: Any) -> tuple[str, str]:
    """(thread, question) of a graph that has asked its question."""
    thread = fleet.submit("deadline", key, {"user_id": "u_42", **declared}).thread_id
    drain(slot, thread)
    question = fleet.status(thread).question
    assert question is not None
    return thread, question.question_id


def move(database: Database, by: str) -> None:
    database.fetch(f"SELECT fleet.move_clock('{by}')")


def answer_of(database: Database, thread: str) -> tuple[Any, ...]:
    """(status, answer, by whom) of the thread's question."""
    (row,) = database.fetch(
        "SELECT status, answer, answered_by FROM fleet.questions WHERE thread_id = %s", thread
    )
    return row


def test_the_default_answer_is_given_at_the_time(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """By "expiry", as an answer like any other; not a moment sooner."""
    thread, _ = asked(fleet, slot, on_expiry={"answer": {"go": False}})
    move(database, "3595 s")
    sweeper.tick()
    assert answer_of(database, thread) == ("open", None, None)
    move(database, HOUR)
    sweeper.tick()
    assert answer_of(database, thread) == ("answered", {"go": False}, "expiry")
    drain(slot, thread)
    assert fleet.status(thread).status == "done"
    sweeper.tick()
    assert accepted(database) == 2


def test_a_default_approval_may_be_one_word(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """It takes the form that the question has, as a person's does."""
    thread, _ = asked(fleet, slot, approval=True, on_expiry={"answer": "rejected"})
    move(database, HOUR)
    sweeper.tick()
    assert answer_of(database, thread)[1] == {"decisions": [{"type": "reject"}]}


def test_a_null_is_a_default_answer_too(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """It is not the same as none."""
    thread, _ = asked(fleet, slot, on_expiry={"answer": None})
    move(database, HOUR)
    sweeper.tick()
    assert answer_of(database, thread) == ("answered", None, "expiry")


def test_whoever_answers_late_is_told_of_the_default(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """Before the sweep has come by, that it is too late; after it, by whom."""
    thread, question = asked(fleet, slot, on_expiry={"answer": 1})
    move(database, HOUR)
    assert refused(lambda: fleet.answer(thread, question, 2)).reason == "expired"
    sweeper.tick()
    late = refused(lambda: fleet.answer(thread, question, 2))
    assert (late.reason, late.answered_by) == ("already_answered", "expiry")


def test_nobody_passes_for_the_expiry(fleet: Fleet, slot: Slot, database: Database) -> None:
    """Its name gives no right to answer late, nor its message_id, and to answer in time none
    is needed."""
    thread, question = asked(fleet, slot)
    move(database, HOUR)
    late = refused(lambda: fleet.answer(thread, question, 2, answered_by="expiry"))
    assert late.reason == "expired"


def test_a_message_by_the_name_of_the_expirys_keeps_no_question_open(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """What would be the default's message_id is taken: the question expires without one."""
    thread, question = asked(fleet, slot, on_expiry={"answer": 1})
    epoch = database.value("SELECT asked_epoch FROM fleet.questions")
    name = f"expiry-{question}-{epoch}"
    database.fetch("UPDATE fleet.messages SET message_id = %s", name)
    move(database, HOUR)
    sweeper.tick()
    assert answer_of(database, thread)[0] == "expired"
    assert fleet.status(thread).status == "failed"


def test_a_question_may_cancel_its_thread(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """With the reason; a late answer is told so."""
    thread, question = asked(fleet, slot, on_expiry="cancel")
    move(database, HOUR)
    sweeper.tick()
    found = fleet.status(thread)
    assert found.status == "cancelled"
    assert question in (found.last_error or "")
    assert refused(lambda: fleet.answer(thread, question, 1)).reason in ("expired", "finished")


def test_a_cancel_takes_the_other_questions_along(
    fleet: Fleet, sweeper: Sweeper, database: Database
) -> None:
    """Also those that expire at the same moment."""
    thread = fleet.submit("refund", "A", {"user_id": "u_42"}).thread_id
    for name in "q1", "q2", "q3":
        ask(database, thread, name, expires_in=None if name == "q3" else 30)
    database.fetch('UPDATE fleet.questions SET on_expiry = \'{"do": "cancel"}\'')
    move(database, "60 s")
    sweeper.tick()
    states = {s for (s,) in database.fetch("SELECT status FROM fleet.questions")}
    assert states == {"expired", "superseded"}
    assert fleet.status(thread).status == "cancelled"


def test_a_question_may_go_to_another_channel_first(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """It stays open for as long as declared, and then comes what was to come then."""
    then = {"notify": "chat", "expires_in": 60, "then": {"answer": "no"}}
    thread, _ = asked(fleet, slot, on_expiry={"notify": "webhook", "then": then})
    told = "SELECT channel, round, status FROM fleet.notifications ORDER BY created_at"
    move(database, HOUR)
    sweeper.tick()
    assert database.fetch(told) == [("webhook", 1, "waiting")]
    move(database, "7199 s")
    sweeper.tick()
    assert answer_of(database, thread)[0] == "open"
    move(database, "7202 s")
    sweeper.tick()
    assert database.fetch(told) == [("webhook", 1, "waiting"), ("chat", 1, "waiting")]
    move(database, "7300 s")
    sweeper.tick()
    assert answer_of(database, thread) == ("answered", "no", "expiry")


def test_a_channel_is_told_again_where_that_is_declared(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """As a reminder; without a `then` the thread fails after it."""
    reminder = {"notify": "chat", "then": {"notify": "chat"}}
    thread, _ = asked(fleet, slot, on_expiry=reminder)
    for hours in 1, 2, 3:
        move(database, f"{hours * 3600 + hours} s")
        sweeper.tick()
    rounds = database.fetch("SELECT round FROM fleet.notifications ORDER BY round")
    assert rounds == [(1,), (2,)]
    assert fleet.status(thread).status == "failed"


@pytest.mark.parametrize(
    "declared",
    ["cancle", {"answer": 1, "notify": "chat"}, {"notify": ""}, {"notify": "chat", "then": 7}, 1],
)
def test_what_can_not_be_followed_fails_the_thread_and_says_so(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database, declared: Any
) -> None:
    """At its time; the log says it when the question is asked."""
    thread, _ = asked(fleet, slot, on_expiry=declared)
    move(database, HOUR)
    sweeper.tick()
    found = fleet.status(thread)
    assert found.status == "failed" and "on_expiry" in (found.last_error or "")


def test_a_default_that_does_not_fit_the_question_is_none(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """It is checked as a person's answer is."""
    thread, _ = asked(fleet, slot, approval=True, on_expiry={"answer": 7})
    move(database, HOUR)
    sweeper.tick()
    assert "default answer" in (fleet.status(thread).last_error or "")


@pytest.mark.parametrize("far", [1e9, 1e12, 1e18, 1e300])
def test_a_deadline_beyond_all_times_is_none(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database, far: float
) -> None:
    """It is asked all the same, and what is declared for it does no harm."""
    declared = {"notify": "chat", "expires_in": far}
    thread, question = asked(fleet, slot, expires_in=far, on_expiry=declared)
    sweeper.tick()
    fleet.answer(thread, question, 1)
    drain(slot, thread)
    assert fleet.status(thread).status == "done"


def test_a_deadline_that_another_one_extends_beyond_all_times_does_no_harm(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """The sweep goes on."""
    thread, _ = asked(fleet, slot, on_expiry={"notify": "chat", "expires_in": 1e300})
    move(database, HOUR)
    sweeper.tick()
    assert fleet.status(thread).status in ("failed", "waiting")
    assert answer_of(database, thread)[0] == "expired"


def test_clients_are_told_that_somebody_else_was(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """With the new deadline."""
    _, question = asked(fleet, slot, on_expiry={"notify": "chat"})
    move(database, HOUR)
    sweeper.tick()
    (told,) = database.fetch("SELECT payload FROM fleet.events WHERE type = 'status'")
    assert told[0]["reason"] == "question_extended" and told[0]["question_id"] == question
    assert told[0]["status"] == "waiting" and told[0]["expires_at"]


def test_an_open_transaction_of_a_producer_holds_up_no_other_question(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database
) -> None:
    """The one that it sends to is left for the next look."""
    held, _ = asked(fleet, slot, "A", on_expiry={"answer": 1})
    free, _ = asked(fleet, slot, "B", on_expiry={"answer": 1})
    with database.connect() as conn, conn.transaction():
        conn.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 1))", (held,))
        move(database, HOUR)
        sweeper.tick()
        assert answer_of(database, free)[0] == "answered"
        assert answer_of(database, held)[0] == "open"
    sweeper.tick()
    assert answer_of(database, held)[0] == "answered"


@pytest.mark.parametrize("early", [50, 0, -50])
def test_an_answer_at_the_last_moment_and_the_expiry_are_one_or_the_other(
    fleet: Fleet, slot: Slot, sweeper: Sweeper, database: Database, early: int
) -> None:
    """F131: 50 ms before the time, at it and after it: one of them counts, both doors say the
    same, and the graph is given that one."""
    won: list[str] = []
    for number in range(25):
        move(database, "0 s")
        thread, question = asked(fleet, slot, f"k{number}", on_expiry={"answer": "expiry's"})
        move(database, f"{3600_000 - early} ms")
        said: list[str] = []
        both = threading.Barrier(2)

        def answer(t: str = thread, q: str = question, b: Any = both, s: Any = said) -> None:
            b.wait()
            try:
                fleet.answer(t, q, "a person's", answered_by="ann")
                s.append("accepted")
            except AnswerRefused as refusal:
                s.append(refusal.reason)

        person = threading.Thread(target=answer)
        person.start()
        both.wait()
        sweeper.tick()
        person.join()
        move(database, f"{3600_000 + 1000} ms")
        sweeper.tick()
        state, value, by = answer_of(database, thread)
        in_time = said == ["accepted"]
        assert (state, value, by) == (
            ("answered", "a person's", "ann") if in_time else ("answered", "expiry's", "expiry")
        )
        assert in_time or said[0] in ("expired", "already_answered")
        drain(slot, thread)
        found = fleet.status(thread)
        assert found.status == "done"
        assert [m.kind for m in found.messages] == ["start", "answer"]
        won.append(by)
    if early < 0:
        assert set(won) == {"expiry"}


def test_an_older_workers_question_expires_as_it_always_did(
    fleet: Fleet, sweeper: Sweeper, database: Database
) -> None:
    """It writes no declaration."""
    thread = fleet.submit("refund", "A", {"user_id": "u_42"}).thread_id
    ask(database, thread, "q1", payload=APPROVE, expires_in=30)
    move(database, "60 s")
    sweeper.tick()
    assert fleet.status(thread).status == "failed"


def test_a_fleet_goes_on_by_itself_with_the_default(
    fleet: Fleet, workers: Any, graphs_file: Path
) -> None:
    """Asked, expired, answered and done by its workers."""
    workers.start(graphs_file=graphs_file)
    declared = {"user_id": "u_42", "expires_in": 0.2, "on_expiry": {"answer": "no"}}
    thread = fleet.submit("deadline", "A", declared).thread_id
    done = fleet.wait(thread, 60, until={"done", "failed", "cancelled"})
    assert done.status == "done"
    assert [m.kind for m in done.messages] == ["start", "answer"]
