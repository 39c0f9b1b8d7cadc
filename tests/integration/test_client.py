"""The client on real servers: what is accepted, what is refused, and when nobody answers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from infra.devservers import Stack
from producers import (
    AnswerRefused,
    Fleet,
    FleetUnavailable,
    InvalidInput,
    InvalidKey,
    InvalidPayload,
    MessageConflict,
    NotConfigured,
    NotInDoubt,
    NotMigrated,
    ProducerError,
    QuestionOpen,
    Receipt,
    Start,
    ThreadExists,
    UnknownGraph,
    UnknownThread,
    WaitTimeout,
)
from producers.answers import Verdict
from producers.sessions import Sessions
from tests.harness import ROOT, Broker, Database, clean_environment, eventually

INPUT = {"user_id": "u_42"}
APPROVE = {
    "action_requests": [{"name": "refund", "args": {"amount": "1500.00"}}],
    "review_configs": [{"action_name": "refund", "allowed_decisions": ["approve", "reject"]}],
}


def ask(
    database: Database,
    thread_id: str,
    question_id: str,
    *,
    kind: str = "approve",
    payload: Any = APPROVE,
    schema: Any = None,
    status: str = "open",
    expires_in: float | None = None,
) -> None:
    """What a turn that ends in a question leaves behind."""
    database.fetch(
        """INSERT INTO fleet.questions (thread_id, question_id, generation, kind, payload,
            response_schema, status, asked_epoch, asked_at, expires_at)
        VALUES (%s, %s, 1, %s, %s, %s, %s, 1, fleet.now(), fleet.now() + %s * interval '1 s')""",
        thread_id,
        question_id,
        kind,
        json.dumps(payload),
        json.dumps(schema) if schema else None,
        status,
        expires_in,
    )
    settle(database, thread_id, "waiting")


def settle(database: Database, thread_id: str, status: str) -> None:
    """What the end of a turn leaves behind."""
    database.fetch(
        "UPDATE fleet.messages SET status = 'done' WHERE thread_id = %s AND status = 'pending'",
        thread_id,
    )
    database.fetch("UPDATE fleet.threads SET status = %s WHERE thread_id = %s", status, thread_id)


def accepted(database: Database) -> int:
    """Messages in the mailbox."""
    return int(database.value("SELECT count(*) FROM fleet.messages"))


def seconds(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


# Submitting


def test_a_submitted_message_is_committed_and_published(
    fleet: Fleet, database: Database, broker: Broker
) -> None:
    """The receipt stands for a row in Postgres, and a wake-up lies in the queue."""
    receipt = fleet.submit("refund", "A1001", INPUT, message_id="m1")
    assert receipt == Receipt(
        thread_id="refund:A1001", message_id="m1", seq=1, outcome="accepted", published=True
    )
    assert database.fetch("SELECT thread_id, kind, payload, status FROM fleet.messages") == [
        ("refund:A1001", "start", INPUT, "pending")
    ]
    assert broker.client.llen("fleet") == 1


def test_the_same_message_gets_the_same_receipt(fleet: Fleet, database: Database) -> None:
    """Sent again, also with its keys in another order, it counts once."""
    first = fleet.submit("refund", "A1", {"user_id": "u", "x": 1}, message_id="m")
    again = fleet.submit("refund", "A1", {"x": 1, "user_id": "u"}, message_id="m")
    assert (again.seq, again.message_id, again.outcome) == (first.seq, "m", "duplicate")
    assert accepted(database) == 1


def test_another_payload_under_a_known_id_is_a_conflict(fleet: Fleet, database: Database) -> None:
    """It is refused, and the first stays as it was."""
    fleet.submit("refund", "A1", INPUT, message_id="m")
    with pytest.raises(MessageConflict) as caught:
        fleet.submit("refund", "A1", {"user_id": "other"}, message_id="m")
    assert caught.value.as_dict()["message_id"] == "m"
    assert database.fetch("SELECT payload FROM fleet.messages") == [(INPUT,)]


def test_a_second_start_meets_the_thread(fleet: Fleet, database: Database) -> None:
    """By default it gets the receipt of the first, and nothing is added."""
    first = fleet.submit("refund", "A1", INPUT, message_id="m1")
    second = fleet.submit("refund", "A1", {"user_id": "other"}, message_id="m2")
    assert (second.outcome, second.message_id, second.seq) == ("existing", "m1", first.seq)
    assert accepted(database) == 1


def test_a_second_start_can_be_rejected(fleet: Fleet, database: Database) -> None:
    """on_existing="reject" refuses it; the same message again is no second start."""
    fleet.submit("refund", "A1", INPUT, message_id="m1", on_existing="reject")
    with pytest.raises(ThreadExists):
        fleet.submit("refund", "A1", INPUT, message_id="m2", on_existing="reject")
    again = fleet.submit("refund", "A1", INPUT, message_id="m1", on_existing="reject")
    assert again.outcome == "duplicate"
    assert accepted(database) == 1


def test_a_second_start_can_restart(fleet: Fleet, database: Database) -> None:
    """on_existing="restart" adds a message that begins a new generation."""
    fleet.submit("refund", "A1", INPUT)
    receipt = fleet.submit("refund", "A1", INPUT, on_existing="restart")
    assert (receipt.outcome, receipt.seq) == ("accepted", 2)
    assert database.fetch("SELECT restarts FROM fleet.messages ORDER BY seq") == [(False,), (True,)]


def test_submitted_twice_at_once_counts_once(
    fleet: Fleet, database: Database, broker: Broker
) -> None:
    """Sixteen threads with one message and one Fleet get one receipt."""
    barrier = threading.Barrier(16)

    def submit(_: int) -> Receipt:
        barrier.wait(10)
        return fleet.submit("refund", "A1", INPUT, message_id="m")

    with ThreadPoolExecutor(16) as pool:
        receipts = list(pool.map(submit, range(16)))
    assert sorted(r.outcome for r in receipts) == ["accepted"] + ["duplicate"] * 15
    assert {(r.thread_id, r.seq) for r in receipts} == {("refund:A1", 1)}
    assert accepted(database) == 1


def test_the_order_of_a_thread_is_the_order_of_acceptance(fleet: Fleet, database: Database) -> None:
    """Seq numbers of concurrent messages have neither gaps nor doubles."""
    fleet.submit("refund", "A1", INPUT)
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda n: fleet.send("refund:A1", {"n": n}), range(40)))
    assert sorted(r.seq for r in receipts) == list(range(2, 42))


def test_tenants_do_not_meet(database: Database, broker: Broker) -> None:
    """The same key of two tenants is two threads; one does not see the other's."""
    with (
        Fleet(database.url, broker.url, tenant="acme") as acme,
        Fleet(database.url, broker.url, tenant="bolt") as bolt,
    ):
        receipt = acme.submit("refund", "A1", INPUT)
        assert receipt.thread_id == "acme/refund:A1"
        assert acme.status("refund:A1").thread_id == acme.status("acme/refund:A1").thread_id
        with pytest.raises(UnknownThread):
            bolt.status("acme/refund:A1")
        with pytest.raises(UnknownThread):
            bolt.status("refund:A1")
        assert bolt.threads() == [] and len(acme.threads()) == 1


# Inside the caller's own transaction


@pytest.mark.parametrize("row_factory", [psycopg.rows.tuple_row, dict_row])
def test_it_commits_with_the_callers_transaction(
    fleet: Fleet, database: Database, broker: Broker, row_factory: Any
) -> None:
    """Before the commit there is nothing; after it the message, and nothing published."""
    with psycopg.connect(database.url, row_factory=row_factory) as conn:
        conn.execute("CREATE TABLE orders (id text)")
        conn.execute("INSERT INTO orders VALUES ('A1')")
        receipt = fleet.submit("refund", "A1", INPUT, connection=conn)
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        assert accepted(database) == 0
        conn.commit()
    assert accepted(database) == 1
    assert database.value("SELECT count(*) FROM orders") == 1
    assert broker.client.llen("fleet") == 0


def test_it_is_rolled_back_with_the_callers_transaction(fleet: Fleet, database: Database) -> None:
    """A business change that fails takes its message with it."""
    with database.connect() as conn, pytest.raises(ZeroDivisionError), conn.transaction():
        fleet.submit("refund", "A1", INPUT, connection=conn)
        raise ZeroDivisionError
    assert accepted(database) == 0


def test_a_refusal_leaves_the_callers_transaction_usable(fleet: Fleet, database: Database) -> None:
    """The caller may go on without the message."""
    with psycopg.connect(database.url) as conn:
        for wrong in ({}, {"user_id": 1}):
            with pytest.raises(InvalidInput):
                fleet.submit("refund", "A1", wrong, connection=conn)
        with pytest.raises(UnknownGraph):
            fleet.submit("nope", "A1", {}, connection=conn)
        fleet.submit("refund", "A1", INPUT, connection=conn)
    assert accepted(database) == 1


def test_the_commit_notifies(fleet: Fleet, database: Database) -> None:
    """The sweeper's leader hears of it after the commit, not before."""
    with database.connect() as listening, psycopg.connect(database.url) as conn:
        listening.execute("LISTEN fleet_mail")
        fleet.submit("refund", "A1", INPUT, connection=conn)
        assert list(listening.notifies(timeout=0.1)) == []
        conn.commit()
        heard = [n.payload for n in listening.notifies(timeout=5, stop_after=1)]
    assert heard == ["refund:A1"]


# Many at once


def test_many_are_accepted_in_the_order_given(
    fleet: Fleet, database: Database, broker: Broker
) -> None:
    """1,100 starts in three forms; receipts in order, wake-ups up to the limit."""
    items = [
        *[("refund", f"a{n}", INPUT) for n in range(1000)],
        *[{"graph": "refund", "key": f"b{n}", "input": INPUT} for n in range(50)],
        *[Start(graph="refund", key=f"c{n}", input=INPUT) for n in range(50)],
    ]
    receipts = fleet.submit_many(items)
    keys = [f"a{n}" for n in range(1000)] + [f"b{n}" for n in range(50)]
    keys += [f"c{n}" for n in range(50)]
    assert [r.thread_id for r in receipts] == [f"refund:{key}" for key in keys]
    assert all(r.published for r in receipts)
    assert accepted(database) == 1100
    assert 0 < broker.client.llen("fleet") <= 16


def test_500_cost_one_commit(fleet: Fleet, database: Database) -> None:
    """A batch is one transaction."""
    fleet.submit("refund", "warm", INPUT)
    horizon = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = database.value(horizon)
    fleet.submit_many([("refund", f"k{n}", INPUT) for n in range(500)])
    # Other tests' databases live on the same server only in other sessions of ours.
    assert database.value(horizon) - before <= 3


BAD_ITEMS: dict[str, tuple[Any, type[ProducerError]]] = {
    "key": (("refund", "", INPUT), InvalidKey),
    "payload": (("refund", "k", {"user_id": "\x00"}), InvalidPayload),
    "schema": (("refund", "k", {}), InvalidInput),
    "graph": (("nope", "k", INPUT), UnknownGraph),
    "form": (("refund", "k"), InvalidPayload),
    "conflict": (
        {"graph": "refund", "key": "old", "input": {"user_id": "z"}, "message_id": "m"},
        MessageConflict,
    ),
    "exists": (
        {"graph": "refund", "key": "old", "input": INPUT, "on_existing": "reject"},
        ThreadExists,
    ),
}


@pytest.mark.parametrize("many", [3, 700])
@pytest.mark.parametrize(("bad", "error"), BAD_ITEMS.values(), ids=BAD_ITEMS.keys())
def test_one_bad_item_refuses_the_call(
    fleet: Fleet, database: Database, broker: Broker, bad: Any, error: type, many: int
) -> None:
    """Nothing of it is accepted or published, and the error names the item."""
    fleet.submit("refund", "old", INPUT, message_id="m")
    broker.client.delete("fleet")
    items: list[Any] = [("refund", f"k{n}", INPUT) for n in range(many)]
    items.insert(2, bad)
    with pytest.raises(error) as caught:
        fleet.submit_many(items)
    assert caught.value.index == 2 and str(caught.value).startswith("Item 2: ")
    assert accepted(database) == 1
    assert broker.client.llen("fleet") == 0


def test_two_payloads_under_one_id_in_a_call_are_a_conflict(
    fleet: Fleet, database: Database
) -> None:
    """Found before anything is sent."""
    twice = [
        {"graph": "refund", "key": "k", "input": {"user_id": user}, "message_id": "m"}
        for user in ("a", "b")
    ]
    with pytest.raises(MessageConflict):
        fleet.submit_many(twice)
    assert accepted(database) == 0


def test_many_calls_with_the_same_threads_do_not_deadlock(fleet: Fleet, database: Database) -> None:
    """Whatever the order in each call."""
    items = [
        {"graph": "refund", "key": f"k{n}", "input": INPUT, "message_id": "m"} for n in range(300)
    ]
    with ThreadPoolExecutor(4) as pool:
        calls = [items, items[::-1], items[150:] + items[:150], items[::-1]]
        outcomes = [r.outcome for receipts in pool.map(fleet.submit_many, calls) for r in receipts]
    assert outcomes.count("accepted") == 300 == accepted(database)


def test_no_items_are_no_work(fleet: Fleet) -> None:
    """An empty call is fine."""
    assert fleet.submit_many([]) == []


# What is refused


def test_an_unknown_graph_is_refused_with_the_known(fleet: Fleet, database: Database) -> None:
    """Nothing is written for it."""
    with pytest.raises(UnknownGraph, match="refund") as caught:
        fleet.submit("refnud", "A1", INPUT)
    assert caught.value.data["known"] == ["refund"]
    assert database.value("SELECT count(*) FROM fleet.threads") == 0


@pytest.mark.parametrize("wrong", [{}, {"user_id": 7}, {"user": "u"}])
def test_input_is_checked_against_the_graph(
    fleet: Fleet, database: Database, wrong: dict[str, Any]
) -> None:
    """The graph's own schema says what it takes."""
    with pytest.raises(InvalidInput, match="user_id"):
        fleet.submit("refund", "A1", wrong)
    assert database.value("SELECT count(*) FROM fleet.threads") == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda fleet, thread: fleet.status(thread),
        lambda fleet, thread: fleet.wait(thread, 0.1),
        lambda fleet, thread: fleet.send(thread, {}),
        lambda fleet, thread: fleet.answer(thread, None, "approved"),
        lambda fleet, thread: fleet.answer(thread, "q", "approved"),
        lambda fleet, thread: fleet.resolve(thread, "r", True),
    ],
)
def test_an_unknown_thread_is_never_started(
    fleet: Fleet, database: Database, use: Callable[[Fleet, str], Any]
) -> None:
    """Only `submit` makes threads."""
    with pytest.raises(UnknownThread):
        use(fleet, "refund:A1")
    with pytest.raises(InvalidKey):
        use(fleet, "refund")
    assert database.value("SELECT count(*) FROM fleet.threads") == 0


# Answers


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


def test_the_same_answer_sent_again_gets_the_same_receipt(fleet: Fleet, asked: str) -> None:
    """By its message_id, with or without the question's id, in any form."""
    first = fleet.answer(asked, None, "approved", message_id="m")
    for question, value in ((None, "approve"), ("q1", Verdict(True))):
        again = fleet.answer(asked, question, value, message_id="m")
        assert (again.outcome, again.seq) == ("duplicate", first.seq)
    with pytest.raises(MessageConflict):
        fleet.answer(asked, None, "rejected", message_id="m")


def refused(work: Callable[[], Any]) -> AnswerRefused:
    with pytest.raises(AnswerRefused) as caught:
        work()
    assert str(caught.value).isprintable() and caught.value.data["thread_id"]
    return caught.value


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
    """An effect with an intent and no result; any other is refused."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    with pytest.raises(NotInDoubt):
        fleet.resolve(thread, "r1", True, {"refund_id": "x"})
    database.fetch(
        """INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
            args_hash, attempts, epoch, first_started_at, started_at)
        VALUES (%s, 'r1', 1, 1, 'pay', 'park', 'intent', 'h', 1, 1, now(), now())""",
        thread,
    )
    assert fleet.resolve(thread, "r1", True, {"refund_id": "x"}).seq == 2
    payload = database.value("SELECT payload FROM fleet.messages WHERE kind = 'resolve'")
    assert payload == {"request_id": "r1", "happened": True, "result": {"refund_id": "x"}}


# Looking on and waiting


def test_status_tells_what_is_recorded(fleet: Fleet, database: Database, asked: str) -> None:
    """The thread, its question, messages and effects."""
    database.fetch(
        """INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
            args_hash, attempts, epoch, first_started_at, started_at, result_type, result)
        VALUES (%s, 'r1', 1, 1, 'pay', 'resend', 'done', 'h', 2, 1, now(), now(), 'json', %s)""",
        asked,
        b'{"refund_id": "x"}',
    )
    status = fleet.status(asked)
    assert (status.graph, status.key, status.generation, status.status) == (
        "refund",
        "A1",
        1,
        "waiting",
    )
    assert status.question is not None and status.question.question_id == "q1"
    assert status.question.payload == APPROVE
    assert [(m.seq, m.kind, m.status) for m in status.messages] == [(1, "start", "done")]
    (effect,) = status.effects
    assert (effect.name, effect.state, effect.attempts) == ("pay", "done", 2)
    assert effect.result == {"refund_id": "x"}
    assert effect.stored == ("json", b'{"refund_id": "x"}')


def test_threads_are_listed_by_status_and_graph(
    fleet: Fleet, database: Database, asked: str
) -> None:
    """Newest first, up to the limit."""
    for n in range(3):
        fleet.submit("refund", f"B{n}", INPUT)
    assert [t.key for t in fleet.threads(limit=2)] == ["B2", "B1"]
    assert [t.thread_id for t in fleet.threads(status="waiting")] == [asked]
    assert len(fleet.threads(graph="refund")) == 4 and fleet.threads(graph="x") == []


@pytest.mark.parametrize(
    "status", ["done", "failed", "waiting", "cancelled", "in_doubt", "incompatible"]
)
def test_wait_returns_when_the_thread_has_settled(
    fleet: Fleet, database: Database, status: str
) -> None:
    """In any status where it stays until somebody does something."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    timer = threading.Timer(0.3, settle, (database, thread, status))
    timer.start()
    assert fleet.wait(thread, timeout=10).status == status
    timer.join()


def test_wait_does_not_take_the_state_before_the_answer(
    fleet: Fleet, database: Database, asked: str
) -> None:
    """While the answer is in the mailbox, `waiting` is not the end."""
    assert fleet.wait(asked, timeout=5).status == "waiting"
    fleet.answer(asked, None, "approved")
    with pytest.raises(WaitTimeout) as caught:
        fleet.wait(asked, timeout=0.3)
    assert isinstance(caught.value, TimeoutError) and caught.value.data["status"] == "waiting"
    settle(database, asked, "done")
    assert fleet.wait(asked, timeout=5).status == "done"


def test_wait_does_not_wait_for_mail_behind_a_dead_message(
    fleet: Fleet, database: Database
) -> None:
    """It stays until a person acts; a restart is such an act."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    database.fetch("UPDATE fleet.messages SET status = 'dead'")
    database.fetch("UPDATE fleet.threads SET status = 'failed'")
    fleet.send(thread, {"n": 1})
    assert fleet.wait(thread, timeout=5).status == "failed"
    fleet.submit("refund", "A1", INPUT, on_existing="restart")
    with pytest.raises(WaitTimeout):
        fleet.wait(thread, timeout=0.2)


def test_wait_can_be_for_another_status(fleet: Fleet, database: Database) -> None:
    """For example until a worker has begun."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    database.fetch("UPDATE fleet.threads SET status = 'running'")
    assert fleet.wait(thread, timeout=5, until={"running"}).status == "running"


# When nobody answers


@contextmanager
def deaf_server() -> Iterator[int]:
    """Takes connections and never says a word, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def nobody() -> Iterator[int]:
    """A port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port


@pytest.mark.parametrize("server", [deaf_server, nobody])
def test_a_broker_that_is_down_or_hangs_stops_no_submit(database: Database, server: Any) -> None:
    """Accepted within 2 s all the same, and the receipt says that nobody was woken."""
    with server() as port, Fleet(database.url, f"redis://127.0.0.1:{port}/0") as fleet:
        began = time.monotonic()
        receipt = fleet.submit("refund", "A1", INPUT)
        assert time.monotonic() - began < 2
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        receipts = fleet.submit_many([("refund", f"k{n}", INPUT) for n in range(20)])
        assert not any(r.published for r in receipts)
    assert accepted(database) == 21


def test_a_hung_broker_holds_up_no_crowd(database: Database) -> None:
    """Twenty at once are all accepted within 2 s of each other's start."""
    with deaf_server() as port, Fleet(database.url, f"redis://127.0.0.1:{port}/0") as fleet:
        fleet.threads()  # connected

        def submit(n: int) -> float:
            return seconds(lambda: fleet.submit("refund", f"k{n}", INPUT))

        with ThreadPoolExecutor(20) as pool:
            assert max(pool.map(submit, range(20))) < 2
    assert accepted(database) == 20


def test_a_broker_that_lost_its_connections_and_scripts_is_used_again(
    fleet: Fleet, broker: Broker
) -> None:
    """A restart of the broker costs no receipt its wake-up."""
    assert fleet.submit("refund", "A1", INPUT).published
    broker.client.client_kill_filter(_type="normal", skipme=True)
    broker.client.script_flush()
    broker.client.delete("fleet")
    assert fleet.submit("refund", "A2", INPUT).published
    assert broker.client.llen("fleet") == 1


def test_without_a_broker_the_sweeper_is_notified(database: Database) -> None:
    """No broker's address: the message is accepted and its thread is notified."""
    with database.connect() as listening, Fleet(database.url) as fleet:
        listening.execute("LISTEN fleet_mail")
        assert not fleet.submit("refund", "A1", INPUT).published
        fleet.submit_many([("refund", "A2", INPUT)])
        heard = [n.payload for n in listening.notifies(timeout=5, stop_after=2)]
    assert heard == ["refund:A1", "refund:A2"]


def test_postgres_down_accepts_nothing(broker: Broker) -> None:
    """A clear error at once."""
    with (
        nobody() as port,
        Fleet(f"postgresql://x@127.0.0.1:{port}/x", broker.url) as fleet,
        pytest.raises(FleetUnavailable, match="Nothing was accepted"),
    ):
        fleet.submit("refund", "A1", INPUT)
    assert broker.client.llen("fleet") == 0


def test_a_postgres_that_hangs_is_given_up(broker: Broker) -> None:
    """Within the time to connect; libpq's least is 2 s."""
    with deaf_server() as port:
        url = f"postgresql://x@127.0.0.1:{port}/x?connect_timeout=2"
        with Fleet(url, broker.url) as fleet:
            began = time.monotonic()
            with pytest.raises(FleetUnavailable):
                fleet.submit("refund", "A1", INPUT)
            assert time.monotonic() - began < 4


def test_lost_connections_are_replaced(fleet: Fleet, database: Database) -> None:
    """A restart of Postgres between two calls is not noticed."""
    fleet.submit("refund", "A1", INPUT)
    for kill in range(3):
        database.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'fleet-client'"""
        )
        assert fleet.submit("refund", f"B{kill}", INPUT).outcome == "accepted"


def test_work_whose_connection_goes_is_done_again_once(database: Database) -> None:
    """Its first try may have been committed: it is repeated, and then called unknown."""
    sessions = Sessions(database.url)
    tries: list[int] = []

    def die(conn: psycopg.Connection[Any], times: int) -> int:
        tries.append(conn.info.backend_pid)
        if len(tries) <= times:
            conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return len(tries)

    assert sessions.run(lambda conn: die(conn, 1)) == 2
    tries.clear()
    with pytest.raises(FleetUnavailable, match="not known whether"):
        sessions.run(lambda conn: die(conn, 9))
    assert len(set(tries)) == len(tries) == 2
    sessions.close()


def test_a_message_in_another_open_transaction_is_not_waited_for_for_ever(
    fleet: Fleet, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that forgot to commit stops others on its thread, with a clear error."""
    from producers import queries

    impatient = queries._QUERIES["accept"].replace("'10s'", "'200ms'")
    assert "200ms" in impatient
    monkeypatch.setitem(queries._QUERIES, "accept", impatient)
    with psycopg.connect(database.url) as conn:
        fleet.submit("refund", "A1", INPUT, connection=conn)
        with pytest.raises(FleetUnavailable, match="open transaction"):
            fleet.submit("refund", "A1", INPUT)
        assert fleet.submit("refund", "A2", INPUT).outcome == "accepted"


def test_missing_migrations_are_told(empty_database: Database, broker: Broker) -> None:
    """With what to run; nothing is published."""
    with Fleet(empty_database.url, broker.url) as fleet:
        for use in (
            lambda: fleet.submit("refund", "A1", INPUT),
            lambda: fleet.submit_many([("refund", "A1", INPUT)]),
            lambda: fleet.status("refund:A1"),
            lambda: fleet.threads(),
            lambda: fleet.answer("refund:A1", None, "approved"),
        ):
            with pytest.raises(NotMigrated, match="fleet migrate"):
                use()
    assert broker.client.llen("fleet") == 0


@pytest.mark.parametrize(
    ("postgres", "redis"),
    [
        ("not a url", None),
        ("postgresql://x@127.0.0.1/x", "http://127.0.0.1"),
        ("postgresql://x@127.0.0.1/x", "redis://127.0.0.1:port"),
    ],
)
def test_addresses_that_can_not_be_used_are_told(postgres: str, redis: str | None) -> None:
    """Before anything is sent."""
    with pytest.raises(NotConfigured, match="looks like"):
        Fleet(postgres, redis).submit("refund", "A1", INPUT)


def test_without_arguments_the_settings_count(
    settings_env: None, database: Database, broker: Broker
) -> None:
    """Fleet() finds what the environment names."""
    with Fleet() as fleet:
        assert fleet.submit("refund", "A1", INPUT).published
    assert accepted(database) == 1


def test_a_fleet_can_be_used_on_both_sides_of_a_fork(fleet: Fleet, database: Database) -> None:
    """A service may make it before its server forks."""
    fleet.submit("refund", "A1", INPUT)
    pid = os.fork()
    if pid == 0:
        try:
            fleet.submit("refund", "A2", INPUT)
            os._exit(0)
        except BaseException:
            os._exit(1)
    fleet.submit("refund", "A3", INPUT)
    found = eventually(lambda: os.waitpid(pid, os.WNOHANG)[0] and True)
    assert found and fleet.submit("refund", "A4", INPUT).outcome == "accepted"
    assert accepted(database) == 4


# The wake-up, as others read it


def test_wake_ups_stop_at_the_limit(fleet: Fleet, broker: Broker) -> None:
    """A long backlog lives in Postgres, not twice."""
    receipts = [fleet.submit("refund", f"k{n}", INPUT) for n in range(40)]
    assert all(r.published for r in receipts)
    assert broker.client.llen("fleet") == 16


STOCK_APP = """
import os
from celery import Celery

app = Celery("stock", broker=os.environ["BROKER"])
app.conf.update(accept_content=["json"], task_acks_late=True, worker_prefetch_multiplier=1)

@app.task(name="fleet.turns", bind=True)
def turns(self, *args, **kwargs):
    import json, redis
    client = redis.Redis.from_url(os.environ["BROKER"])
    seen = {"args": args, "kwargs": kwargs, "argsrepr": self.request.argsrepr,
            "queue": self.request.delivery_info["routing_key"]}
    client.rpush("seen", json.dumps(seen))
"""


def test_a_stock_celery_worker_takes_the_wake_up(
    stack: Stack, fleet: Fleet, broker: Broker, tmp_path: Path
) -> None:
    """JSON only, no configuration of ours, no binding; any key comes through and is acked."""
    (tmp_path / "stock.py").write_text(STOCK_APP)
    keys = ["A1001", "ü 'quoted' \"key\"/2:3", "x" * 255]
    for key in keys:
        fleet.submit("refund", key, INPUT)
    argv = [sys.executable, "-m", "celery", "-A", "stock", "worker", "-Q", "fleet"]
    argv += ["--pool", "solo", "-l", "INFO", "--without-gossip", "--without-mingle"]
    environment = clean_environment() | {"BROKER": broker.url, "PYTHONPATH": str(tmp_path)}
    worker = stack.spawn("stock", argv, environment, tmp_path / "stock.log", cwd=tmp_path)
    try:
        eventually(lambda: broker.client.llen("seen") == len(keys), timeout=30)
        seen = [json.loads(line) for line in broker.client.lrange("seen", 0, -1)]
        eventually(lambda: broker.client.hlen("unacked") == 0)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{worker.log()}") from None
    finally:
        worker.kill_group()
        worker.wait(5)
    threads = [f"refund:{key}" for key in keys]
    assert [s["args"] for s in seen] == [[thread] for thread in threads]
    assert [s["argsrepr"] for s in seen] == [f"({thread!r},)" for thread in threads]
    assert all(s["kwargs"] == {"v": 1} and s["queue"] == "fleet" for s in seen)
    assert broker.client.llen("fleet") == 0


# The thin wheel


def test_the_thin_client_needs_none_of_ours(database: Database, tmp_path: Path) -> None:
    """Its modules, under another package name, work where Celery, LangGraph and we are absent."""
    package = tmp_path / "threadfleet_client"
    package.mkdir()
    for file in (ROOT / "producers").iterdir():
        if file.suffix in (".py", ".sql"):
            shutil.copy(file, package)
    code = """
import sys
for name in ("celery", "kombu", "langgraph", "langchain_core", "infra", "graphs", "workers",
             "producers", "pydantic_settings", "typer"):
    sys.modules[name] = None
from threadfleet_client import Fleet, MessageConflict
with Fleet() as fleet:
    receipt = fleet.submit("refund", "A1", {"user_id": "u"}, message_id="m")
    print(receipt.outcome, fleet.status(receipt.thread_id).status)
    try:
        fleet.submit("refund", "A1", {"user_id": "v"}, message_id="m")
    except MessageConflict:
        print("conflict")
"""
    environment = clean_environment(postgres_url=database.url) | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == (["accepted", "idle", "conflict"], "")
