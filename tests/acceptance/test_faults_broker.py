"""What others met between Celery and its broker, done to a fleet: see docs/faults.md.

One worker with two slots stands on a broker that is the module's own; what is done to the
broker or to the way there is over when a test ends.
"""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.devservers import Stack
from infra.ports import free_port
from producers import Fleet
from producers.chaos.proxy import Proxy
from producers.local.processes import slot_pid
from producers.wakeup import message
from tests.acceptance.servers import Servers
from tests.acceptance.standing import (
    INPUT,
    Standing,
    crashes,
    forks,
    held_orders,
    is_at_rest,
    refunded_and_notified_once,
    standing,
    start,
)
from tests.harness import Broker, Database, Databases, Shop, eventually
from tests.worker_processes import Worker, Workers

QUEUE = "fleet"
#: Seconds after which kombu looks for what has expired (`unacked_restore_interval`), and some.
EXPIRES = 15.0


@pytest.fixture(scope="module")
def servers(stack: Stack) -> Iterator[Servers]:
    """A broker of the module's own, beside the session's Postgres; it keeps nothing."""
    with Servers(postgres_url=stack.postgres_url, persistent=False) as servers:
        yield servers


@pytest.fixture(scope="module")
def fleet_of_one(
    databases: Databases, servers: Servers, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("faults")
    with standing(databases, servers.stack, _shop, folder) as made:
        made.start(1, concurrency=2)
        yield made


@pytest.fixture
def it(fleet_of_one: Standing, shop: Shop) -> Iterator[Standing]:
    yield fleet_of_one
    eventually(lambda: is_at_rest(fleet_of_one.database, fleet_of_one.broker), 20)


def only(it: Standing) -> Worker:
    (worker,) = it.workers
    assert worker.child.poll() is None
    return worker


def done_once(it: Standing, *orders: str, crashed: int = 0) -> None:
    for order in orders:
        it.ends(f"refund:{order}")
        assert crashes(it.database, order) == [crashed]
    refunded_and_notified_once(it.shop, *orders)
    assert forks(it.database) == []


# Delivered again


def test_a_delivery_that_expires_during_its_turn_changes_nothing(it: Standing) -> None:
    """The broker's record is as old as if the visibility timeout had passed: kombu delivers
    the wake-up once more, it is acknowledged at once, and the turn goes on."""
    (order,) = held_orders(it.shop, it.fleet, 1)
    client = it.broker.client
    (tag,) = client.zrange("unacked_index", 0, -1)
    client.zadd("unacked_index", {tag: 1})
    eventually(lambda: client.hlen("unacked") == 0 and client.llen(QUEUE) == 0, EXPIRES)
    assert it.shop.held(order)
    it.shop.release(order)
    done_once(it, order)
    assert it.shop.calls("refunds", order) == 1


def test_a_turn_without_the_brokers_record_is_taken_over_all_the_same(it: Standing) -> None:
    """As after another copy's acknowledgement: its process is killed, and nobody is told."""
    (order,) = held_orders(it.shop, it.fleet, 1)
    it.broker.client.delete("unacked", "unacked_index")
    os.kill(slot_pid(it.fleet.status(f"refund:{order}").owner or ""), signal.SIGKILL)
    done_once(it, order, crashed=1)
    assert len(it.shop.books(order)["calls"]["refunds"]["by_key"]) == 1


def test_hundreds_of_expired_deliveries_are_put_back_and_do_nothing(it: Standing) -> None:
    """Those of a dead fleet, all of them in one sweep; new mail is served beside them."""
    done = it.order()
    it.ends(f"refund:{done}")
    client, number = it.broker.client, 500
    with client.pipeline() as pipe:
        for n in range(number):
            wake_up = json.loads(message(QUEUE, f"refund:{done}"))
            pipe.hset("unacked", f"old-{n}", json.dumps([wake_up, "", QUEUE]))
            pipe.zadd("unacked_index", {f"old-{n}": 1})
        pipe.execute()
    order = it.order()
    done_once(it, order)
    eventually(lambda: client.hlen("unacked") == 0 and client.llen(QUEUE) == 0, 60)
    assert it.database.value("SELECT count(*) FROM fleet.rejected_wakeups") == 0
    assert it.shop.calls("refunds", done) == 1


def test_many_wake_ups_at_once_serve_each_message_once(it: Standing) -> None:
    """Five for each of forty threads, two of them with one task id."""
    orders = [it.shop.new_order() for _ in range(40)]
    wake_ups = []
    for order in orders:
        twice = message(QUEUE, f"refund:{order}")
        wake_ups += [twice, twice, *(message(QUEUE, f"refund:{order}") for _ in range(3))]
    it.fleet.submit_many([("refund", order, INPUT) for order in orders])
    it.broker.client.lpush(QUEUE, *wake_ups)
    done_once(it, *orders)
    assert [it.shop.calls("refunds", order) for order in orders] == [1] * len(orders)


# Never delivered


def test_a_wake_up_that_died_with_its_taker_is_given_again(
    workers: Workers, database: Database, broker: Broker, fleet: Fleet, shop: Shop
) -> None:
    """Popped by a worker that is killed before it has recorded it: in no list and no hash."""
    taker = workers.start(concurrency=1)

    def taken() -> str | None:
        os.kill(taker.pid, signal.SIGSTOP)
        order = shop.new_order()
        fleet.submit("refund", order, INPUT)
        if broker.client.llen(QUEUE) == 0 and broker.client.hlen("unacked") == 0:
            return order
        # Its last look had just timed out.
        os.kill(taker.pid, signal.SIGCONT)
        assert fleet.wait(f"refund:{order}", 20).status == "done"
        return None

    order = eventually(taken)
    assert order is not None
    taker.kill()
    assert broker.client.llen(QUEUE) == 0
    assert broker.client.hlen("unacked") == 0
    workers.start(concurrency=1)
    assert fleet.wait(f"refund:{order}", 20).status == "done"
    refunded_and_notified_once(shop, order)


def test_workers_that_are_replaced_while_mail_comes_in_lose_and_repeat_nothing(
    workers: Workers, database: Database, broker: Broker, fleet: Fleet, shop: Shop
) -> None:
    """All at the same time: no crash is counted, and nothing is left on the broker."""
    orders = [shop.new_order() for _ in range(40)]

    def submit() -> None:
        for order in orders:
            fleet.submit("refund", order, INPUT)

    leaving = start(workers, 2, concurrency=2)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(submit)
        eventually(lambda: shop.calls("refunds", orders[0]))
        for worker in leaving:
            worker.child.terminate()
        for worker in leaving:
            assert worker.child.wait(30) == 0
        sending.result(30)
    workers.start(concurrency=2)
    for order in orders:
        assert fleet.wait(f"refund:{order}", 30).status == "done"
    assert [crashes(database, order) for order in orders] == [[0]] * len(orders)
    refunded_and_notified_once(shop, *orders)
    eventually(lambda: is_at_rest(database, broker))
    eventually(lambda: broker.client.hlen("unacked") == 0)


def test_a_cold_shutdown_during_a_call_repeats_nothing(
    workers: Workers, database: Database, broker: Broker, fleet: Fleet, shop: Shop
) -> None:
    """SIGQUIT: the worker ends at once, and another finishes what the shop has paid."""
    first = workers.start(concurrency=1)
    (order,) = held_orders(shop, fleet, 1)
    os.kill(first.pid, signal.SIGQUIT)
    workers.start(concurrency=1)
    assert fleet.wait(f"refund:{order}", 20).status == "done"
    shop.release()
    assert first.child.wait(20) is not None
    refunded_and_notified_once(shop, order)
    assert len(shop.books(order)["calls"]["refunds"]["by_key"]) == 1
    eventually(lambda: is_at_rest(database, broker))


# The way to the broker


def test_a_worker_whose_way_to_the_broker_is_cut_time_and_again_goes_on(
    fleet: Fleet, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """Reset under it while mail comes in, whatever it is just taking: each is done once."""
    orders: list[str] = []
    with Proxy(broker.url) as network:
        worker = workers.start(concurrency=2, redis_url=network.url)
        for _ in range(3):
            for _ in range(8):
                orders.append(shop.new_order())
                fleet.submit("refund", orders[-1], INPUT)
                network.cut()
            eventually(lambda: "Connection to broker lost" in worker.log())
        for order in orders:
            found = fleet.wait(f"refund:{order}", 30)
            assert (found.status, found.messages[0].crashes) == ("done", 0)
        # It takes wake-ups again, not only what its slots find in Postgres.
        eventually(lambda: broker.client.llen(QUEUE) == 0, 30)
        assert worker.child.poll() is None
    refunded_and_notified_once(shop, *orders)


def test_a_broker_that_takes_no_writes_for_a_while_ends_no_worker(it: Standing) -> None:
    """As the demoted side of a failover: READONLY, then writable again."""
    (held,) = held_orders(it.shop, it.fleet, 1)
    client, worker = it.broker.client, only(it)
    # Nobody is there to follow, so it keeps what it has.
    client.replicaof("127.0.0.1", free_port())
    try:
        order = it.shop.new_order()
        receipt = it.fleet.submit("refund", order, INPUT)
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        eventually(lambda: worker.log().count("read only replica") > 5, 20)
        it.shop.release()
        it.ends(f"refund:{held}")
    finally:
        client.replicaof("NO", "ONE")
    done_once(it, held, order)
    eventually(lambda: client.llen(QUEUE) == 0 and client.hlen("unacked") == 0, 30)
    done_once(it, it.order())
    assert worker is only(it)


def test_wake_ups_need_no_binding(it: Standing) -> None:
    """What kombu keeps of its routes may be evicted or deleted."""
    client = it.broker.client
    if bindings := client.keys("_kombu.binding.*"):
        client.delete(*bindings)
    done_once(it, *[it.order() for _ in range(3)])


# Options of Celery's that users add


def test_processes_are_replaced_while_the_broker_restarts(
    stack: Stack, database: Database, shop: Shop, workers: Workers
) -> None:
    """Each ends in order after a task, another begins, and the worker stays alive."""
    with Servers(postgres_url=stack.postgres_url, persistent=False) as servers:
        url = servers.stack.redis_url
        worker = workers.start("--max-tasks-per-child", "1", concurrency=2, redis_url=url)
        before = set(worker.pool_pids())
        orders = [shop.new_order() for _ in range(24)]
        with Fleet(database.url, url) as fleet:
            for order in orders[:8]:
                fleet.submit("refund", order, INPUT)
            servers.end()
            for order in orders[8:16]:
                assert not fleet.submit("refund", order, INPUT).published
            servers.start()
            for order in orders[16:]:
                fleet.submit("refund", order, INPUT)
            for order in orders:
                found = fleet.wait(f"refund:{order}", 60)
                assert (found.status, found.messages[0].crashes) == ("done", 0)
        eventually(lambda: before.isdisjoint(worker.pool_pids()))
        assert worker.child.poll() is None
    refunded_and_notified_once(shop, *orders)


@pytest.mark.parametrize("option", ["--time-limit", "--soft-time-limit"])
def test_a_worker_refuses_celerys_time_limits(option: str, workers: Workers) -> None:
    """They would end turns in the middle, and nobody would count it: our own timeout is named."""
    worker = workers.start(option, "60", concurrency=1, wait=False)
    assert worker.child.wait(30) == 1
    assert f"error: the fleet can't run with Celery's {option}" in worker.log()
    assert "FLEET_TURN_TIMEOUT" in worker.log()
    assert "Traceback" not in worker.log()
