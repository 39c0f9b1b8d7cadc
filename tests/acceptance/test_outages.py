"""Hosts, networks and servers that go away under running workers, and clocks that jump."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from infra.devservers import Stack
from producers import Fleet, FleetUnavailable
from producers.chaos.proxy import Proxy
from tests.acceptance import firewall
from tests.acceptance.servers import Servers, claimed_anew, claims
from tests.acceptance.standing import (
    ABOVE,
    INPUT,
    held_orders,
    holder,
    leader,
    refunded_and_notified_once,
)
from tests.harness import ROOT, Broker, Database, Shop, eventually
from tests.worker_processes import Worker, Workers

GRAPHS = ROOT / "tests" / "graphs" / "langgraph.json"

Lose = Callable[[Proxy], None]
Find = Callable[[Proxy], None]

#: G6: a host that is lost.
HOST_LOST = 20.0
with_black_holes = pytest.mark.skipif(
    "sys.platform != 'linux'", reason="packets are dropped by a Linux socket filter"
)


def rows(database: Database, orders: list[str]) -> list[tuple[Any, ...]]:
    """All that is stored of the orders' threads."""
    found = []
    for table in ("fleet.threads", "fleet.messages", "fleet.effects", "checkpoints"):
        sql = f"SELECT to_jsonb(t) FROM {table} t WHERE thread_id = ANY(%s) ORDER BY t::text"
        found += database.fetch(sql, [f"refund:{order}" for order in orders])
    return found


def lost(worker: Worker, orders: list[str]) -> bool:
    """Whether the worker has noticed that these turns are not its own any more."""
    return all(f"turn of refund:{order} lost" in worker.log() for order in orders)


def seconds(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


# Hosts


@pytest.fixture(
    params=[pytest.param("filter", marks=with_black_holes), "iptables"],
)
def losing(request: pytest.FixtureRequest) -> Iterator[tuple[Lose, Find]]:
    """Two ways in which a host is lost without a FIN, and found again: its sockets take
    nothing in, or the machine's firewall drops its packets."""
    if request.param == "filter":
        yield Proxy.black_hole, Proxy.pass_on
        return
    if reason := firewall.missing():
        pytest.skip(f"no packets are dropped by iptables: {reason}")
    with firewall.Firewall() as wall:
        yield wall.drop, lambda _: wall.pass_on()


def test_turns_of_a_lost_host_go_on_within_twenty_seconds(
    fleet: Fleet,
    database: Database,
    broker: Broker,
    shop: Shop,
    workers: Workers,
    losing: tuple[Lose, Find],
) -> None:
    """The sweep's lead too. Back on the network the host writes nothing, and serves again."""
    lose, find = losing
    with Proxy(database.url) as to_postgres, Proxy(broker.url) as to_broker:
        gone = workers.start(concurrency=2, postgres_url=to_postgres.url, redis_url=to_broker.url)
        eventually(lambda: leader(database) == gone.name)
        orders = held_orders(shop, fleet, 2)
        before = claims(database, orders)
        other = workers.start(concurrency=2)
        lose(to_postgres)
        lose(to_broker)
        took = seconds(lambda: eventually(claimed_anew(database, before), 2 * HOST_LOST))
        assert took < HOST_LOST
        assert leader(database) == other.name
        for order in orders:
            assert fleet.wait(f"refund:{order}", 20).status == "done"
        left = rows(database, orders)
        shop.release()
        find(to_postgres)
        find(to_broker)
        eventually(lambda: lost(gone, orders), 20)
        assert rows(database, orders) == left
        other.terminate()
        (again,) = held_orders(shop, fleet, 1)
        assert holder(database, workers, again) is gone
        shop.release()
        assert fleet.wait(f"refund:{again}", 20).status == "done"
    refunded_and_notified_once(shop, *orders, again)


@with_black_holes
def test_a_producer_that_loses_postgres_without_a_word_is_told(
    database: Database, broker: Broker
) -> None:
    """Its submit raises in bounded time, says that the end is not known, and works later."""
    with Proxy(database.url) as network, Fleet(network.url, broker.url) as fleet:
        fleet.submit("refund", "A1", INPUT)
        network.black_hole()
        began = time.monotonic()
        with pytest.raises(FleetUnavailable, match="same message_id"):
            fleet.submit("refund", "A2", INPUT, message_id="m2")
        assert time.monotonic() - began < HOST_LOST + 5
        network.pass_on()
        assert fleet.submit("refund", "A2", INPUT, message_id="m2").thread_id == "refund:A2"
    assert database.value("SELECT count(*) FROM fleet.messages") == 2


def test_a_worker_stopped_as_a_whole_writes_nothing_when_it_comes_back(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """Leader and pool, for longer than the turn's timeout; another ends its turns meanwhile."""
    frozen = workers.start(concurrency=2, turn_timeout=1)
    eventually(lambda: leader(database) == frozen.name)
    orders = held_orders(shop, fleet, 2)
    other = workers.start(concurrency=2, turn_timeout=1)
    os.killpg(frozen.pid, signal.SIGSTOP)
    try:
        for order in orders:
            assert fleet.wait(f"refund:{order}", 30).status == "done"
        left = rows(database, orders)
        shop.release()
    finally:
        os.killpg(frozen.pid, signal.SIGCONT)
    eventually(lambda: lost(frozen, orders), 20)
    assert rows(database, orders) == left
    other.terminate()
    (again,) = held_orders(shop, fleet, 1)
    assert holder(database, workers, again) is frozen
    shop.release()
    assert fleet.wait(f"refund:{again}", 20).status == "done"
    refunded_and_notified_once(shop, *orders, again)


# The broker


@pytest.fixture
def own_broker(stack: Stack) -> Iterator[Servers]:
    """It keeps nothing when it ends."""
    with Servers(postgres_url=stack.postgres_url, persistent=False) as servers:
        yield servers


def test_a_broker_that_comes_back_empty_loses_nothing(
    own_broker: Servers, database: Database, shop: Shop, workers: Workers
) -> None:
    """A turn under way and mail that waits: done once, without a crash counted."""
    url = own_broker.stack.redis_url
    worker = workers.start(concurrency=1, redis_url=url)
    with Fleet(database.url, url) as fleet:
        (held,) = held_orders(shop, fleet, 1)
        orders = [held, *(shop.new_order() for _ in range(10))]
        fleet.submit_many([("refund", order, INPUT) for order in orders[1:]])
        own_broker.end()
        own_broker.start()
        assert own_broker.stack.redis_url == url
        shop.release()
        for order in orders:
            found = fleet.wait(f"refund:{order}", 30)
            assert (found.status, found.messages[0].crashes) == ("done", 0)
    assert worker.child.poll() is None
    refunded_and_notified_once(shop, *orders)


def test_submits_while_the_broker_freezes_are_accepted_and_done(
    own_broker: Servers, database: Database, shop: Shop, workers: Workers
) -> None:
    """Many at once, before, during and after: none takes long, each is done once."""
    url = own_broker.stack.redis_url
    workers.start(concurrency=2, redis_url=url)
    with Fleet(database.url, url) as fleet, ThreadPoolExecutor(4) as pool:
        orders = [shop.new_order() for _ in range(40)]
        with redis.Redis.from_url(url) as client:
            pid = int(client.info("server")["process_id"])
        done: list[float] = []

        def submit(order: str) -> None:
            done.append(seconds(lambda: fleet.submit("refund", order, INPUT)))

        work = [pool.submit(submit, order) for order in orders[:20]]
        eventually(lambda: len(done) >= 5)
        os.kill(pid, signal.SIGSTOP)
        try:
            work += [pool.submit(submit, order) for order in orders[20:]]
            for each in work:
                each.result(30)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert max(done) < 3
        for order in orders:
            assert fleet.wait(f"refund:{order}", 30).status == "done"
    refunded_and_notified_once(shop, *orders)


# Clocks


@dataclass
class Timed:
    """One thread of each kind that has to do with time."""

    turn: str
    later: str
    asked: str
    deadline: str


@pytest.fixture
def fleet_settings(fleet_settings: dict[str, Any], database: Database) -> dict[str, Any]:
    database.register(GRAPHS)
    return fleet_settings | {"graphs_file": GRAPHS}


@pytest.fixture
def before(fleet: Fleet, shop: Shop, workers: Workers) -> Timed:
    """A call at the shop, mail that is due in half an hour, and two questions."""
    workers.start(concurrency=2)
    asked, later = shop.new_order(ABOVE), shop.new_order()
    fleet.submit("refund", asked, INPUT)
    fleet.submit("deadline", asked, INPUT)
    shop.fault("refunds", "busy_429", order_id=later, count=1, retry_after=1800)
    fleet.submit("refund", later, INPUT)
    for thread in (f"refund:{asked}", f"deadline:{asked}"):
        assert fleet.wait(thread, 20).status == "waiting"
    eventually(lambda: fleet.status(f"refund:{later}").messages[0].failures)
    (turn,) = held_orders(shop, fleet, 1)
    return Timed(turn, later, asked, f"deadline:{asked}")


def test_a_clock_that_jumps_ahead_makes_things_due_and_repeats_none(
    fleet: Fleet, database: Database, shop: Shop, before: Timed
) -> None:
    """Retries are due, deadlines over, the turn is taken for hung; other questions stay."""
    database.fetch("SELECT fleet.move_clock('2 hours')")
    for order in (before.turn, before.later):
        eventually(lambda order=order: fleet.status(f"refund:{order}").status == "done", 20)  # type: ignore[misc]
    eventually(lambda: fleet.status(before.deadline).status == "failed")
    assert "in time" in (fleet.status(before.deadline).last_error or "")
    shop.release()
    fleet.answer(f"refund:{before.asked}", None, "approved")
    assert fleet.wait(f"refund:{before.asked}", 20).status == "done"
    (message,) = fleet.status(f"refund:{before.turn}").messages
    assert message.crashes == 1
    refunded_and_notified_once(shop, before.turn, before.later, before.asked)


def test_a_clock_that_jumps_back_only_makes_what_waits_wait_longer(
    fleet: Fleet, database: Database, shop: Shop, before: Timed
) -> None:
    """The turn ends, questions can be answered, new mail is served; a retry is due on demand."""
    database.fetch("SELECT fleet.move_clock('-2 hours')")
    shop.release()
    new = shop.new_order()
    fleet.submit("refund", new, INPUT)
    fleet.answer(f"refund:{before.asked}", None, "approved")
    fleet.answer(before.deadline, None, "yes")
    ended = (f"refund:{before.turn}", f"refund:{new}", f"refund:{before.asked}", before.deadline)
    for thread in ended:
        found = fleet.wait(thread, 20)
        assert found.status == "done"
        assert [message.crashes for message in found.messages] == [0] * len(found.messages)
    assert fleet.status(f"refund:{before.later}").messages[0].status == "pending"
    fleet.retry(f"refund:{before.later}")
    assert fleet.wait(f"refund:{before.later}", 20).status == "done"
    refunded_and_notified_once(shop, before.turn, new, before.asked, before.later)
