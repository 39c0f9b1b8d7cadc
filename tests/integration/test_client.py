"""The client on real servers: what is accepted and what is refused."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from producers import (
    Fleet,
    InvalidInput,
    InvalidKey,
    MessageConflict,
    ProducerError,
    Receipt,
    ThreadExists,
    UnknownGraph,
    UnknownThread,
)
from tests.harness import Broker, Database
from tests.integration.mailbox import INPUT, accepted, settle


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


def test_nobody_is_said_to_be_woken_where_nobody_was(
    fleet: Fleet, database: Database, broker: Broker
) -> None:
    """For a message that has had its turn, and for one of a paused graph."""
    fleet.submit("refund", "A1", INPUT, message_id="m")
    settle(database, "refund:A1", "done")
    broker.client.delete("fleet")
    again = fleet.submit("refund", "A1", INPUT, message_id="m")
    assert (again.outcome, again.published) == ("duplicate", False)
    both = fleet.submit_many(
        [{"graph": "refund", "key": key, "input": INPUT, "message_id": "m"} for key in ("A1", "A2")]
    )
    assert [receipt.published for receipt in both] == [False, True]
    fleet.pause("refund")
    held = fleet.submit("refund", "A3", INPUT)
    assert (held.paused, held.published) == (True, False)
    assert broker.client.llen("fleet") == 1


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


def test_an_unknown_graph_is_refused_with_the_known(fleet: Fleet, database: Database) -> None:
    """Nothing is written for it."""
    with pytest.raises(UnknownGraph, match="refund") as caught:
        fleet.submit("refnud", "A1", INPUT)
    assert caught.value.data["known"] == ["booking", "refund"]
    assert database.value("SELECT count(*) FROM fleet.threads") == 0


@pytest.mark.parametrize("wrong", [{}, {"user_id": 7}, {"user": "u"}])
def test_input_is_checked_against_the_graph(
    fleet: Fleet, database: Database, wrong: dict[str, Any]
) -> None:
    """The graph's own schema says what it takes."""
    with pytest.raises(InvalidInput, match="user_id"):
        fleet.submit("refund", "A1", wrong)
    assert database.value("SELECT count(*) FROM fleet.threads") == 0


def test_later_input_is_checked_too(fleet: Fleet, database: Database) -> None:
    """What it gives has to be of the right type; what the state has already may be left out."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    with pytest.raises(InvalidInput, match="user_id: 7 is not of type 'string'"):
        fleet.send(thread, {"user_id": 7})
    assert database.value("SELECT count(*) FROM fleet.messages") == 1
    for fits in ({}, {"user_id": "u_43"}):
        assert fleet.send(thread, fits).outcome == "accepted"


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


def test_an_empty_message_id_is_refused(fleet: Fleet, database: Database) -> None:
    """It is a variable that was not set: sent again it would count as another message."""
    with pytest.raises(ProducerError, match="message_id"):
        fleet.submit("refund", "A1", INPUT, message_id="")
    assert accepted(database) == 0
