"""Looking at threads and waiting for them."""

import threading

import pytest

from producers import (
    Fleet,
    WaitTimeout,
)
from tests.harness import Database
from tests.integration.mailbox import APPROVE, INPUT, ask, settle


@pytest.fixture
def asked(fleet: Fleet, database: Database) -> str:
    """A thread with one open approval, q1."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    ask(database, thread, "q1")
    return thread


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
