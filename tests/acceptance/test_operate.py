"""Operating a fleet that works: cancel, retry, pause and drain against real workers and a shop."""

from collections.abc import Iterator

import pytest

from infra.devservers import Stack
from producers import Fleet
from tests.acceptance.standing import (
    ABOVE,
    BELOW,
    INPUT,
    Standing,
    crashes,
    is_at_rest,
    refunded_and_notified_once,
    standing,
)
from tests.harness import Broker, Database, Databases, Shop, eventually
from tests.worker_processes import Worker, Workers


@pytest.fixture(scope="module")
def one_worker(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    with standing(databases, stack, _shop, tmp_path_factory.mktemp("operate")) as made:
        made.start(1, concurrency=2)
        yield made


@pytest.fixture
def it(one_worker: Standing, shop: Shop) -> Iterator[Standing]:
    yield one_worker
    one_worker.fleet.resume("refund")
    eventually(lambda: is_at_rest(one_worker.database, one_worker.broker))


def held(fleet: Fleet, shop: Shop, amount: str = BELOW) -> str:
    """An order whose refund has been made, with the reply kept back; its turn is under way."""
    order = shop.new_order(amount)
    shop.fault("refunds", "hold_after", order_id=order)
    fleet.submit("refund", order, INPUT)
    eventually(lambda: shop.held(order))
    return order


def refused(it: Standing) -> str:
    """The thread of an order whose refund the shop refuses, dead of it."""
    order = it.shop.new_order()
    it.shop.fault("refunds", "refuse", order_id=order)
    thread = it.fleet.submit("refund", order, INPUT).thread_id
    it.ends(thread, "failed")
    it.shop.clear_faults()
    return thread


# Cancel


def test_a_running_turn_is_cancelled_after_its_effect(it: Standing) -> None:
    """The refund in flight is finished and recorded; nobody is notified any more."""
    order = held(it.fleet, it.shop)
    thread = f"refund:{order}"
    assert it.fleet.cancel(thread).outcome == "requested"
    it.shop.release(order)
    status = it.ends(thread, "cancelled")
    assert [(e.name, e.state) for e in status.effects] == [("payments.refund", "done")]
    assert [m.status for m in status.messages] == ["cancelled"]
    assert it.shop.refunds(order) == 1
    assert order not in str(it.shop.books(order)["notifications"])


def test_a_turn_is_cancelled_in_the_pause_between_two_tries(it: Standing) -> None:
    """It does not wait for the try after it, which the shop has put off for long."""
    order = it.shop.new_order()
    it.shop.fault("refunds", "busy_429", order_id=order, retry_after=29)
    thread = it.fleet.submit("refund", order, INPUT).thread_id
    eventually(lambda: it.shop.calls("refunds", order) == 1)
    assert it.fleet.cancel(thread).outcome == "requested"
    assert it.fleet.wait(thread, 15).status == "cancelled"
    assert it.shop.calls("refunds", order) == 1


def test_a_waiting_thread_is_cancelled_at_once(it: Standing) -> None:
    """Its question is closed, a late answer refused."""
    thread, _ = it.asked(ABOVE)
    assert it.fleet.cancel(thread).outcome == "cancelled"
    assert it.fleet.status(thread).questions == []


# Retry


def test_a_dead_refund_is_retried_under_a_new_request_id(it: Standing) -> None:
    """Without --new-request the recorded refusal is met again, and the shop not called."""
    thread = refused(it)
    order = thread.partition(":")[2]
    calls = it.shop.calls("refunds", order)
    it.fleet.retry(thread)
    it.ends(thread, "failed")
    assert it.shop.calls("refunds", order) == calls
    (renewed,) = it.fleet.retry(thread, new_request=True).renewed
    status = it.ends(thread)
    made = {e.request_id: e.state for e in status.effects if e.name == "payments.refund"}
    assert made == {renewed.request_id: "failed", renewed.renewed_as: "done"}
    refunded_and_notified_once(it.shop, order)


def test_a_dropped_refund_can_be_started_anew(it: Standing) -> None:
    """The refusal belongs to the order, not to the run: a new request is still on purpose."""
    thread = refused(it)
    assert it.fleet.drop(thread).status == "cancelled"
    it.fleet.restart(thread)
    assert it.ends(thread, "failed").generation == 2
    it.fleet.retry(thread, new_request=True)
    it.ends(thread)
    refunded_and_notified_once(it.shop, thread.partition(":")[2])


# Pause


def test_a_paused_graph_keeps_its_mail_until_it_is_resumed(it: Standing) -> None:
    """The turn under way goes on to its end; what comes meanwhile waits, and is then done."""
    running = held(it.fleet, it.shop)
    hold = it.fleet.pause("refund")
    assert (hold.running, hold.waiting) == (1, 0)
    waiting = it.shop.new_order()
    receipt = it.fleet.submit("refund", waiting, INPUT)
    assert receipt.paused and it.broker.client.llen("fleet") == 0
    it.shop.release(running)
    it.ends(f"refund:{running}")
    # Its slot has looked for more mail since.
    assert it.fleet.status(receipt.thread_id).status == "idle"
    assert it.broker.client.keys("paused:*") == []
    it.fleet.resume("refund")
    it.ends(receipt.thread_id)
    refunded_and_notified_once(it.shop, running, waiting)


# Drain


def holder(fleet: Fleet, order: str) -> str:
    """The worker that has the order's thread, by `fleet workers`."""
    (found,) = (
        w.worker for w in fleet.workers() if f"refund:{order}" in [r.thread_id for r in w.runs]
    )
    return found


def state(fleet: Fleet, worker: str) -> str:
    (found,) = (w.state for w in fleet.workers() if w.worker == worker)
    return found


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_drained_worker_gives_its_turns_away_and_stays_up(
    pool: str, fleet: Fleet, database: Database, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """Its turn ends at the next superstep and goes on elsewhere; undone, it works again."""
    first = workers.start(pool=pool, concurrency=2)
    order = held(fleet, shop)
    assert holder(fleet, order) == first.name
    assert fleet.drain(first.name).state == "draining"
    eventually(lambda: "takes no more turns" in first.log(), 2)
    second = workers.start(pool=pool, concurrency=2)
    shop.release(order)
    status = fleet.wait(f"refund:{order}", 20)
    assert status.status == "done" and crashes(database, order) == [0]
    refunded_and_notified_once(shop, order)
    eventually(lambda: state(fleet, first.name) == "drained")
    done_by(fleet, shop, second)
    fleet.drain(first.name, undo=True)
    fleet.drain(second.name)
    eventually(lambda: state(fleet, second.name) == "drained")
    assert eventually(lambda: state(fleet, first.name) == "ready")
    done_by(fleet, shop, first)
    assert [w.child.poll() for w in (first, second)] == [None, None]
    eventually(lambda: is_at_rest(database, broker))


def done_by(fleet: Fleet, shop: Shop, worker: Worker) -> None:
    """Several orders, all of which this worker takes."""
    orders = [shop.new_order() for _ in range(6)]
    shop.fault("refunds", "hold_after", order_id=orders[0])
    for order in orders:
        fleet.submit("refund", order, INPUT)
    eventually(lambda: shop.held(orders[0]))
    assert holder(fleet, orders[0]) == worker.name
    shop.release(orders[0])
    for order in orders:
        assert fleet.wait(f"refund:{order}", 20).status == "done"
    refunded_and_notified_once(shop, *orders)


def test_a_worker_started_anew_is_not_drained(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """What was asked of an earlier one of its name is forgotten."""
    database.fetch(
        """INSERT INTO fleet.workers (worker, queues, slots, wakeups, pool, started_at, seen_at,
            drain_requested)
        VALUES ('again@test', '{fleet}', 1, 4, 'prefork', now(), now(), true)"""
    )
    workers.start("-n", "again@test", concurrency=1, wait=False)
    order = shop.new_order()
    fleet.submit("refund", order, INPUT)
    assert fleet.wait(f"refund:{order}", 30).status == "done"
    assert state(fleet, "again@test") == "ready"
