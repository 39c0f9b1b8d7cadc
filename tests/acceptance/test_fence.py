"""One writer: a process that was stopped, lost its claim and comes back changes nothing.

SIGSTOP in the middle of a turn, as a debugger, a full cgroup or a suspended machine does.
After FLEET_TURN_TIMEOUT (a second here) the sweep ends its session, another process ends
the turn, and then SIGCONT.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from graphs.ledger import FRESH
from infra.devservers import Stack
from producers.local.processes import slot_pid
from tests.acceptance.standing import (
    BELOW,
    INPUT,
    Standing,
    forks,
    held_orders,
    is_at_rest,
    leader,
    order_of,
    refunded_and_notified_once,
    standing,
)
from tests.harness import Databases, Shop, eventually

#: Where a turn is stopped, and how often the shop is called for the refund in all: a turn
#: that has come back sends nothing.
CALLS = {
    "claim.after_lock": 1,
    "effect.after_intent": 1,
    "effect.after_call": 2,
    "effect.after_result": 2,
    "turn.before_commit": 1,
}
POINTS = (*CALLS, "turn.at_interrupt")


@pytest.fixture(scope="module")
def two_workers(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("fence")
    with standing(databases, stack, _shop, folder, turn_timeout=1) as made:
        made.disarm(POINTS)
        made.start(2, concurrency=1, failpoints=";".join(f"{p}=stop" for p in POINTS))
        yield made


@pytest.fixture
def it(two_workers: Standing, shop: Shop) -> Iterator[Standing]:
    yield two_workers
    two_workers.disarm(POINTS)


def rows(it: Standing, thread: str) -> dict[str, Any]:
    """All that is stored of the thread."""
    found: dict[str, Any] = {}
    for table in ("threads", "messages", "effects", "questions", "keyed_effects"):
        sql = f"SELECT to_jsonb(t) FROM fleet.{table} t WHERE thread_id = %s ORDER BY t::text"
        found[table] = it.database.fetch(sql, thread)
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        sql = f"SELECT to_jsonb(t) FROM {table} t WHERE thread_id = %s ORDER BY t::text"
        found[table] = it.database.fetch(sql, thread)
    assert found["threads"] and found["checkpoints"]
    return found


def losses(it: Standing, thread: str) -> int:
    """How often a process has noticed that its turn of the thread is not its own any more."""
    return sum(worker.log().count(f"turn of {thread} lost") for worker in it.workers)


def not_vouched_for(it: Standing, thread: str) -> bool:
    """Whether the intents' commits are too old for a call without another look at the claim.

    The timeout here is shorter than that: a turn that came back in between would call.
    """
    sql = """SELECT bool_and(fleet.now() - first_started_at > %s * interval '1 s')
        FROM fleet.effects WHERE thread_id = %s"""
    return bool(it.database.value(sql, FRESH, thread))


@contextmanager
def stopped(it: Standing, point: str) -> Iterator[list[int]]:
    """Arm the point; whatever stopped there goes on at the end, and is in the list then."""
    before = len(it.workers.hits(point))
    it.arm(point)
    pids: list[int] = []

    def hit() -> bool:
        pids[:] = [pid for pid, *_ in it.workers.hits(point)[before:]]
        return len(pids) == 1

    try:
        yield pids
        assert eventually(hit)
    finally:
        for pid, *_ in it.workers.hits(point)[before:]:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("point", CALLS)
def test_a_turn_that_was_stopped_writes_nothing_when_it_comes_back(
    it: Standing, point: str
) -> None:
    """It sends nothing either: each row is as the next claim left it, the refund was one."""
    order = it.shop.new_order(BELOW)
    thread = f"refund:{order}"
    with stopped(it, point):
        it.fleet.submit("refund", order, INPUT)
        done = it.ends(thread)
        if point == "effect.after_intent":
            eventually(lambda: not_vouched_for(it, thread))
        left = rows(it, thread)
    assert eventually(lambda: losses(it, thread))
    assert rows(it, thread) == left
    assert left["messages"][0][0]["claimed_epoch"] == done.epoch
    assert max(effect[0]["epoch"] for effect in left["effects"]) == done.epoch
    refunded_and_notified_once(it.shop, order)
    # On a busy machine another turn, too, may have been slower than the timeout.
    assert it.shop.calls("refunds", order) <= CALLS[point] + losses(it, thread) - 1
    assert forks(it.database) == []


def test_a_turn_stopped_before_it_asks_does_not_ask_again(it: Standing) -> None:
    """Back again it neither opens another question nor takes back the answer."""
    with stopped(it, "turn.at_interrupt"):
        thread, question = it.asked()
        it.fleet.answer(thread, question, "approved")
        it.ends(thread)
        left = rows(it, thread)
    assert eventually(lambda: losses(it, thread))
    assert rows(it, thread) == left
    assert [q[0]["question_id"] for q in left["questions"]] == [question]
    refunded_and_notified_once(it.shop, order_of(thread))


def held_order(it: Standing) -> tuple[str, int]:
    """(order, pid) of an order in whose turn the shop has paid and keeps back its reply."""
    (order,) = held_orders(it.shop, it.fleet, 1)
    owner = it.fleet.status(f"refund:{order}").owner
    assert owner is not None
    return order, slot_pid(owner)


def test_a_process_stopped_during_its_call_drops_the_reply(it: Standing) -> None:
    """The reply arrives when the order is done long since; the process then serves others."""
    order, pid = held_order(it)
    thread = f"refund:{order}"
    os.kill(pid, signal.SIGSTOP)
    try:
        done = it.ends(thread)
        left = rows(it, thread)
        it.shop.release(order)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert eventually(lambda: losses(it, thread))
    assert rows(it, thread) == left
    assert max(effect[0]["epoch"] for effect in left["effects"]) == done.epoch
    refunded_and_notified_once(it.shop, order)
    (back,) = (worker for worker in it.workers if pid in worker.pool_pids())

    def serves() -> bool:
        other = f"refund:{it.order()}"
        it.ends(other)
        return f"turn of {other}: message" in back.log()

    assert eventually(serves)
    assert eventually(lambda: is_at_rest(it.database, it.broker))


def test_a_call_that_hangs_loses_its_turn(it: Standing) -> None:
    """Without progress for the timeout another process takes over; the late reply is dropped."""
    order, _ = held_order(it)
    thread = f"refund:{order}"
    it.ends(thread)
    left = rows(it, thread)
    it.shop.release(order)
    assert eventually(lambda: losses(it, thread))
    assert rows(it, thread) == left
    refunded_and_notified_once(it.shop, order)
    assert len(it.shop.books(order)["calls"]["refunds"]["by_key"]) == 1


def test_a_leader_that_is_stopped_is_replaced(it: Standing) -> None:
    """Another worker leads the sweep within its patience of five seconds; one leads, later too."""
    first = leader(it.database)
    (stopped_one,) = (w for w in it.workers if w.name == first)
    os.kill(stopped_one.pid, signal.SIGSTOP)
    try:
        assert eventually(lambda: leader(it.database) != first, timeout=8)
        second = leader(it.database)
    finally:
        os.kill(stopped_one.pid, signal.SIGCONT)
    assert eventually(lambda: "sweep failed" in stopped_one.log())
    assert leader(it.database) == second
    it.ends(f"refund:{it.order()}")
