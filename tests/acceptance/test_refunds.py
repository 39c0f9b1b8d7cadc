"""The refund job end to end: below and above the limit, asked twice, answered twice, restarted.

One fleet of two workers serves all of it. Its sweep looks for overdue mail once a minute
only, so nothing here passes by that second line.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from infra.devservers import Stack
from producers import (
    AnswerRefused,
    Fleet,
    MessageConflict,
    QuestionOpen,
    ThreadExists,
    UnknownThread,
)
from producers.answers import Verdict
from tests.acceptance.standing import (
    ABOVE,
    BELOW,
    INPUT,
    Standing,
    at_once,
    forks,
    is_at_rest,
    notices,
    order_of,
    refunded_and_notified_once,
    standing,
)
from tests.harness import Databases, Shop, eventually


@pytest.fixture(scope="module")
def two_workers(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("refunds")
    with standing(databases, stack, _shop, folder, redelivery_after=60) as made:
        made.start(2, concurrency=2)
        yield made


@pytest.fixture
def it(two_workers: Standing, shop: Shop) -> Standing:
    """The fleet, with a shop that does what it is asked."""
    return two_workers


def refused(it: Standing, thread: str, question: str | None, value: Any = "approved") -> str:
    """The reason why this answer is refused."""
    with pytest.raises(AnswerRefused) as caught:
        it.fleet.answer(thread, question, value)
    assert caught.value.data["thread_id"] == thread
    return caught.value.reason


def count(it: Standing, table: str, thread: str) -> int:
    sql = f"SELECT count(*) FROM fleet.{table} WHERE thread_id = %s"
    return int(it.database.value(sql, thread))


# Automatic, asked, rejected


@pytest.mark.parametrize("amount", ["0.01", BELOW, "1000.00"])
def test_up_to_the_limit_nobody_is_asked(it: Standing, amount: str) -> None:
    """The order is refunded once and its user told, each by one call."""
    order = it.order(amount)
    done = it.ends(f"refund:{order}")
    refunded_and_notified_once(it.shop, order)
    assert it.shop.books(order)["refunds"][0]["amount"] == amount
    assert count(it, "questions", done.thread_id) == 0
    assert [(e.name, e.state, e.attempts) for e in done.effects] == [
        ("payments.refund", "done", 1),
        ("notify.user", "done", 1),
    ]


def test_above_the_limit_a_person_is_asked_first(it: Standing) -> None:
    """Nothing is refunded while the question is open; once approved the order is, once."""
    thread, question = it.asked("1000.01")
    waiting = it.fleet.status(thread)
    assert waiting.effects == [] and waiting.question is not None
    assert waiting.question.payload["action_requests"][0]["args"] == {
        "order_id": order_of(thread),
        "amount": "1000.01",
    }
    it.fleet.answer(thread, question, "approved")
    assert it.ends(thread).question is None
    refunded_and_notified_once(it.shop, order_of(thread))


def test_a_rejected_refund_ends_in_order(it: Standing) -> None:
    """Nothing is refunded, and the user is told why."""
    thread, question = it.asked()
    value = {"decisions": [{"type": "reject", "message": "not ours"}]}
    it.fleet.answer(thread, question, value)
    done = it.ends(thread)
    assert [e.name for e in done.effects] == ["notify.user"]
    assert it.shop.calls("refunds", order_of(thread)) == 0
    (notice,) = notices(it.shop, order_of(thread))
    assert "was rejected. Reason: not ours" in notice["text"]


@pytest.mark.parametrize(
    "form",
    [
        {"decisions": [{"type": "approve"}]},
        [{"type": "accept", "args": None}],
        [{"type": "accept"}],
        "approved",
        "approve",
        Verdict(True),
    ],
    ids=str,
)
def test_each_form_of_yes_approves(it: Standing, form: Any) -> None:
    """LangChain's decisions, the older list, and plain words."""
    thread, question = it.asked()
    it.fleet.answer(thread, question, form)
    it.ends(thread)
    refunded_and_notified_once(it.shop, order_of(thread))


@pytest.mark.parametrize(
    "form",
    [
        {"decisions": [{"type": "reject"}]},
        [{"type": "ignore", "args": None}],
        "rejected",
        "reject",
        Verdict(False, "no"),
    ],
    ids=str,
)
def test_each_form_of_no_rejects(it: Standing, form: Any) -> None:
    """LangChain's decisions, the older list, and plain words."""
    thread, question = it.asked()
    it.fleet.answer(thread, question, form)
    it.ends(thread)
    assert it.shop.refunds(order_of(thread)) == 0


def test_an_answer_of_the_wrong_shape_leaves_the_question_open(it: Standing) -> None:
    """Each is refused as such and nothing is written; a right one then approves."""
    thread, question = it.asked()
    wrong: list[Any] = [
        "maybe",
        "",
        None,
        True,
        7,
        {},
        [],
        {"decisions": []},
        {"decisions": [{"type": "approve"}, {"type": "approve"}]},
        {"decisions": [{"type": "edit", "edited_action": {"name": "refund", "args": {}}}]},
        {"decisions": [{"type": "approve"}], "more": 1},
        [{"type": "response", "args": "as you like"}],
        [{"type": "accept"}, {"type": "accept"}],
    ]
    assert {refused(it, thread, question, value) for value in wrong} == {"wrong_shape"}
    assert count(it, "messages", thread) == 1
    it.fleet.answer(thread, question, "approved")
    it.ends(thread)
    refunded_and_notified_once(it.shop, order_of(thread))


def test_an_unknown_order_ends_in_order(it: Standing) -> None:
    """Nothing is sent to anybody."""
    thread = it.fleet.submit("refund", "no such order", INPUT).thread_id
    done = it.ends(thread)
    assert (done.effects, done.last_error) == ([], None)


# Submitted twice


def test_one_message_submitted_many_times_at_once_counts_once(it: Standing) -> None:
    """Every producer gets the same receipt, one of them as the first."""
    order = it.shop.new_order(BELOW)
    doors = [Fleet(it.database.url, it.broker.url) for _ in range(6)]
    receipts = at_once(
        [lambda door=d: door.submit("refund", order, INPUT, message_id="m1") for d in doors]  # type: ignore[misc]
    )
    for door in doors:
        door.close()
    assert sorted(r.outcome for r in receipts) == ["accepted"] + ["duplicate"] * 5
    assert {(r.seq, r.message_id) for r in receipts} == {(1, "m1")}
    it.ends(f"refund:{order}")
    assert count(it, "messages", f"refund:{order}") == 1
    refunded_and_notified_once(it.shop, order)


def test_one_order_submitted_under_many_ids_at_once_is_one_thread(it: Standing) -> None:
    """The first start counts, the others get its receipt."""
    order = it.shop.new_order(BELOW)
    doors = [Fleet(it.database.url, it.broker.url) for _ in range(6)]
    receipts = at_once([lambda door=d: door.submit("refund", order, INPUT) for d in doors])  # type: ignore[misc]
    for door in doors:
        door.close()
    assert sorted(r.outcome for r in receipts) == ["accepted"] + ["existing"] * 5
    assert len({r.message_id for r in receipts}) == 1
    it.ends(f"refund:{order}")
    assert count(it, "messages", f"refund:{order}") == 1
    refunded_and_notified_once(it.shop, order)


def test_a_message_id_with_another_payload_conflicts(it: Standing) -> None:
    """It is refused, also after the thread has ended, and never takes the first one's place."""
    order = it.order()
    for _ in range(2):
        with pytest.raises(MessageConflict):
            it.fleet.submit("refund", order, {"user_id": "u_43"}, message_id=f"start-{order}")
        it.ends(f"refund:{order}")
    refunded_and_notified_once(it.shop, order)
    assert [n["user_id"] for n in notices(it.shop, order)] == ["u_42"]


# Answered twice, late, or to something else


def test_of_answers_at_once_one_counts(it: Standing) -> None:
    """The others are told that it is answered; what happens is what the first one said."""
    thread, question = it.asked()
    doors = [Fleet(it.database.url, it.broker.url) for _ in range(6)]
    values = ["approved", "rejected"] * 3
    replies = at_once(
        [
            lambda door=d, value=v: door.answer(thread, question, value, answered_by=value)  # type: ignore[misc]
            for d, v in zip(doors, values, strict=True)
        ]
    )
    for door in doors:
        door.close()
    refusals = [r for r in replies if isinstance(r, AnswerRefused)]
    assert [r.reason for r in refusals] == ["already_answered"] * 5
    (won,) = (v for v, r in zip(values, replies, strict=True) if not isinstance(r, Exception))
    assert {r.answered_by for r in refusals} == {won}
    it.ends(thread)
    assert it.shop.refunds(order_of(thread)) == (won == "approved")
    assert len(notices(it.shop, order_of(thread))) == 1


def test_one_answer_sent_many_times_at_once_counts_once(it: Standing) -> None:
    """A double click under one message id: the same receipt for all."""
    thread, question = it.asked()
    receipts = at_once(
        [lambda: it.fleet.answer(thread, question, "approved", message_id="click")] * 6
    )
    assert sorted(r.outcome for r in receipts) == ["accepted"] + ["duplicate"] * 5
    it.ends(thread)
    assert count(it, "messages", thread) == 2
    refunded_and_notified_once(it.shop, order_of(thread))


def test_a_late_answer_is_told_who_was_first(it: Standing) -> None:
    """After the end, and by the same id the same receipt."""
    thread, question = it.asked()
    first = it.fleet.answer(thread, question, "approved", message_id="a1", answered_by="ann")
    it.ends(thread)
    with pytest.raises(AnswerRefused, match=r"was answered by ann at 20.*The first answer counts"):
        it.fleet.answer(thread, question, "rejected", answered_by="bob")
    again = it.fleet.answer(thread, question, "approved", message_id="a1", answered_by="ann")
    assert (again.outcome, again.seq) == ("duplicate", first.seq)
    refunded_and_notified_once(it.shop, order_of(thread))


def test_a_thread_that_has_ended_takes_no_answer(it: Standing) -> None:
    """Neither to a question that never was, nor to none in particular."""
    thread = f"refund:{it.order()}"
    it.ends(thread)
    assert refused(it, thread, "0123") == "finished"
    assert refused(it, thread, None) == "finished"
    assert count(it, "messages", thread) == 1


def test_before_it_asks_a_thread_takes_no_answer(it: Standing) -> None:
    """An answer given ahead would be applied to whatever is asked first."""
    order = it.shop.new_order(ABOVE)
    it.shop.fault("orders", "hang", order_id=order)
    thread = it.fleet.submit("refund", order, INPUT).thread_id
    assert refused(it, thread, None) == "no_question"
    assert refused(it, thread, "0123") == "no_question"
    it.shop.clear_faults()
    assert it.fleet.wait(thread, 30).question is not None


def test_an_answer_to_an_older_question_is_refused(it: Standing) -> None:
    """After a restart the question of the run before is stale, and the open one is named."""
    thread, older = it.asked()
    it.fleet.submit("refund", order_of(thread), INPUT, on_existing="restart")
    assert refused(it, thread, older) == "stale_question"
    status = it.fleet.wait(thread, 30)
    assert status.question is not None and status.question.question_id != older
    with pytest.raises(AnswerRefused) as caught:
        it.fleet.answer(thread, older, "approved")
    assert caught.value.reason == "stale_question"
    assert caught.value.open == [status.question.question_id]
    it.fleet.answer(thread, status.question.question_id, "rejected")
    it.ends(thread)
    assert it.shop.refunds(order_of(thread)) == 0


def test_input_while_a_question_is_open_is_refused(it: Standing) -> None:
    """It is not the answer to an approval."""
    thread, question = it.asked()
    with pytest.raises(QuestionOpen) as caught:
        it.fleet.send(thread, INPUT)
    assert caught.value.open == [question]


def test_an_answer_never_starts_a_thread(it: Standing) -> None:
    """An unknown thread is said to be unknown, and stays so."""
    with pytest.raises(UnknownThread):
        it.fleet.answer("refund:nobody", "0123", "approved")
    with pytest.raises(UnknownThread):
        it.fleet.send("refund:nobody", INPUT)
    assert count(it, "threads", "refund:nobody") == 0


# A second start


def test_a_second_start_may_be_refused(it: Standing) -> None:
    """on_existing="reject": told so while it waits and after its end; one refund."""
    thread, question = it.asked()
    with pytest.raises(ThreadExists):
        it.fleet.submit("refund", order_of(thread), INPUT, on_existing="reject")
    it.fleet.answer(thread, question, "approved")
    it.ends(thread)
    with pytest.raises(ThreadExists):
        it.fleet.submit("refund", order_of(thread), INPUT, on_existing="reject")
    refunded_and_notified_once(it.shop, order_of(thread))


def test_a_restart_runs_anew_and_refunds_no_second_time(it: Standing) -> None:
    """Generation 2 starts from a clean state; the refund is the order's, not the run's."""
    thread = f"refund:{it.order()}"
    it.ends(thread)
    it.fleet.submit("refund", order_of(thread), {"user_id": "u_7"}, on_existing="restart")
    done = it.ends(thread)
    assert done.generation == 2
    assert it.shop.calls("refunds", order_of(thread)) == 1
    assert [n["user_id"] for n in notices(it.shop, order_of(thread))] == ["u_42", "u_7"]
    receipt = it.database.fetch(
        """SELECT DISTINCT result FROM fleet.effects
        WHERE thread_id = %s AND name = 'payments.refund'""",
        thread,
    )
    assert len(receipt) == 1


def test_a_restart_waits_for_the_turn_under_way(it: Standing) -> None:
    """Its call is finished and recorded first; mail in between is dropped, with a word."""
    order = it.shop.new_order(BELOW)
    thread = f"refund:{order}"
    it.shop.fault("refunds", "hold_after", order_id=order)
    it.fleet.submit("refund", order, INPUT)
    eventually(lambda: it.shop.held(order))
    it.fleet.send(thread, {"user_id": "u_6"})
    it.fleet.submit("refund", order, {"user_id": "u_7"}, on_existing="restart")
    it.shop.release(order)
    done = it.ends(thread)
    assert [(m.status, m.error) for m in done.messages] == [
        ("done", None),
        ("dropped", "dropped by a restart"),
        ("done", None),
    ]
    assert it.shop.calls("refunds", order) == 1
    assert [n["user_id"] for n in notices(it.shop, order)] == ["u_42", "u_7"]


# The caller's own transaction, order, many


def test_submitted_within_a_transaction_it_starts_with_the_commit(it: Standing) -> None:
    """Not before; and then at once, by the notification that the commit sends."""
    order = it.shop.new_order(BELOW)
    with psycopg.connect(it.database.url) as conn:
        receipt = it.fleet.submit("refund", order, INPUT, connection=conn)
        assert not receipt.published
        with pytest.raises(UnknownThread):
            it.fleet.status(receipt.thread_id)
        conn.commit()
    it.ends(receipt.thread_id)
    refunded_and_notified_once(it.shop, order)


def test_rolled_back_with_its_transaction_it_was_never_submitted(it: Standing) -> None:
    """No thread, no mail, no refund; the same message can be submitted later."""
    order = it.shop.new_order(BELOW)
    with psycopg.connect(it.database.url) as conn:
        it.fleet.submit("refund", order, INPUT, message_id="m1", connection=conn)
        conn.rollback()
    with pytest.raises(UnknownThread):
        it.fleet.status(f"refund:{order}")
    assert it.fleet.submit("refund", order, INPUT, message_id="m1").outcome == "accepted"
    it.ends(f"refund:{order}")
    refunded_and_notified_once(it.shop, order)


def test_messages_are_served_in_the_order_of_acceptance(it: Standing) -> None:
    """Whichever worker serves them, however they were queued."""
    order = it.shop.new_order(BELOW)
    thread = f"refund:{order}"
    it.shop.fault("orders", "hang", order_id=order)
    it.fleet.submit("refund", order, INPUT)
    users = [f"u_{n}" for n in range(8)]
    for user in users:
        it.fleet.send(thread, {"user_id": user})
    it.shop.clear_faults()
    done = it.ends(thread)
    assert [m.seq for m in sorted(done.messages, key=lambda m: m.done_at or m.accepted_at)] == [
        *range(1, 10)
    ]
    assert [n["user_id"] for n in notices(it.shop, order)] == ["u_42", *users]
    assert it.shop.calls("refunds", order) == 1


def test_fifty_threads_on_two_workers_all_end(it: Standing) -> None:
    """Each refunded once, half of them after a question; then the fleet is at rest."""
    amounts = [BELOW, ABOVE] * 25
    orders = [it.shop.new_order(amount) for amount in amounts]
    receipts = it.fleet.submit_many(("refund", order, INPUT) for order in orders)
    for receipt, amount in zip(receipts, amounts, strict=True):
        status = it.fleet.wait(receipt.thread_id, 30)
        assert status.status == ("done" if amount == BELOW else "waiting"), status
        if status.question is not None:
            it.fleet.answer(receipt.thread_id, status.question.question_id, "approved")
    for receipt in receipts:
        it.ends(receipt.thread_id)
    refunded_and_notified_once(it.shop, *orders)
    assert all("turn of refund:" in worker.log() for worker in it.workers)
    assert forks(it.database) == []
    assert eventually(lambda: is_at_rest(it.database, it.broker))
    # Nobody was killed here, so each wake-up that was taken has been acknowledged too.
    assert eventually(lambda: it.broker.client.hlen("unacked") == 0)
