"""SIGKILL at every named point, of a pool's process, a worker, the leader or the whole fleet.

Whoever dies: each order is refunded once by the shop's own books, its thread ends, and the
crash is on record.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.devservers import Stack
from producers import Fleet
from producers.local.processes import slot_pid
from tests.acceptance.commands import gone
from tests.acceptance.standing import (
    ABOVE,
    BELOW,
    INPUT,
    Standing,
    crashes,
    forks,
    held_orders,
    holder,
    idle_in_transaction,
    is_at_rest,
    leader,
    locks,
    open_mail,
    order_of,
    refunded_and_notified_once,
    standing,
    start,
)
from tests.harness import ROOT, Broker, Database, Databases, Shop, eventually, write_graphs
from tests.worker_processes import Workers

CLAIM = ("claim.after_commit", "claim.after_lock")
EFFECT = (
    "effect.before_intent",
    "effect.after_intent",
    "effect.after_call",
    "effect.after_result",
)
END = ("turn.before_commit", "turn.before_unlock", "turn.after_commit")
QUESTION = ("turn.at_interrupt",)
POINTS = CLAIM + EFFECT + QUESTION + END


@pytest.fixture(scope="module")
def two_workers(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """Every point is there in every process, and waits to be armed."""
    folder = tmp_path_factory.mktemp("kills")
    # One message may meet several points; crash loops have fleets of their own.
    with standing(databases, stack, _shop, folder, max_crashes=len(POINTS) + 1) as made:
        made.disarm(POINTS)
        made.start(2, concurrency=2, failpoints=";".join(f"{p}=kill" for p in POINTS))
        yield made


@pytest.fixture
def it(two_workers: Standing, shop: Shop) -> Iterator[Standing]:
    yield two_workers
    two_workers.disarm(POINTS)


def arm(it: Standing, point: str) -> int:
    """Arm the point for what comes next; gives how often it has acted before.

    A wake-up left over from before would meet `claim.after_commit` with nothing to claim.
    """
    queue = it.broker.client
    eventually(lambda: queue.llen("fleet") == 0 and queue.hlen("unacked") == 0)
    it.arm(point)
    return len(it.workers.hits(point))


# One process of a pool


@pytest.mark.parametrize("point", CLAIM + EFFECT + END)
def test_below_the_limit_a_kill_costs_nothing(it: Standing, point: str) -> None:
    """The process dies once at the point; another ends the thread."""
    before = arm(it, point)
    order = it.order()
    it.ends(f"refund:{order}")
    refunded_and_notified_once(it.shop, order)
    eventually(lambda: len(it.workers.hits(point)) == before + 1)
    assert crashes(it.database, order) == [0 if point == "turn.after_commit" else 1]


@pytest.mark.parametrize("point", CLAIM + QUESTION + END)
def test_a_kill_before_the_question_asks_once(it: Standing, point: str) -> None:
    """The process dies in the turn that asks; one question is open, and takes its answer."""
    before = arm(it, point)
    thread, question = it.asked()
    eventually(lambda: len(it.workers.hits(point)) == before + 1)
    assert crashes(it.database, order_of(thread)) == [0 if point == "turn.after_commit" else 1]
    sql = "SELECT count(*) FROM fleet.questions WHERE thread_id = %s"
    assert it.database.value(sql, thread) == 1
    it.fleet.answer(thread, question, "approved")
    it.ends(thread)
    refunded_and_notified_once(it.shop, order_of(thread))


@pytest.mark.parametrize("point", CLAIM + EFFECT + END)
def test_a_kill_after_the_answer_neither_loses_nor_repeats_it(it: Standing, point: str) -> None:
    """The process dies in the turn of the answer; another goes on with that answer."""
    thread, question = it.asked()
    before = arm(it, point)
    it.fleet.answer(thread, question, "approved")
    it.ends(thread)
    refunded_and_notified_once(it.shop, order_of(thread))
    eventually(lambda: len(it.workers.hits(point)) == before + 1)
    assert crashes(it.database, order_of(thread)) == [0, 0 if point == "turn.after_commit" else 1]
    sql = "SELECT status FROM fleet.questions WHERE thread_id = %s"
    assert it.database.fetch(sql, thread) == [("answered",)]


# Many threads, all points at once


@pytest.fixture(scope="module")
def mayhem(two_workers: Standing, _shop: Shop) -> Standing:
    """Thirty orders, half of them asked about, while each point kills a process."""
    it = two_workers
    _shop.reset()
    it.disarm(POINTS)
    before = len(it.workers.hits())
    for point in POINTS:
        it.arm(point)
    orders = [it.shop.new_order(BELOW if n % 2 else ABOVE) for n in range(30)]
    receipts = it.fleet.submit_many(("refund", order, INPUT) for order in orders)
    for receipt in receipts:
        status = it.fleet.wait(receipt.thread_id, 30)
        if status.question is not None:
            it.fleet.answer(receipt.thread_id, status.question.question_id, "approved")
    for receipt in receipts:
        it.fleet.wait(receipt.thread_id, 30)
    eventually(lambda: len(it.workers.hits()) == before + len(POINTS))
    it.orders = orders
    eventually(lambda: is_at_rest(it.database, it.broker))
    return it


def test_in_mayhem_each_order_is_refunded_once(mayhem: Standing) -> None:
    """And its user is told once."""
    refunded_and_notified_once(mayhem.shop, *mayhem.orders)


def test_in_mayhem_every_thread_ends(mayhem: Standing) -> None:
    """None failed, none left over, and the crashes are on record."""
    sql = "SELECT DISTINCT status FROM fleet.threads"
    assert mayhem.database.fetch(sql) == [("done",)]
    sql = "SELECT sum(crashes) FROM fleet.messages WHERE status = 'done'"
    # A process killed at turn.after_commit may have had a next message, or none.
    assert mayhem.database.value(sql) >= len(POINTS) - 1


def test_after_mayhem_checkpoints_form_one_chain_per_thread(mayhem: Standing) -> None:
    """No checkpoint has two that follow it: there was one writer at any time."""
    assert forks(mayhem.database) == []


def test_after_mayhem_nothing_is_held(mayhem: Standing) -> None:
    """No advisory lock but the sweep's, and no transaction left open."""
    assert locks(mayhem.database) == []
    assert idle_in_transaction(mayhem.database) == []


def test_after_mayhem_nothing_is_waiting(mayhem: Standing) -> None:
    """No message pending or claimed, and no wake-up in the queue."""
    assert open_mail(mayhem.database) == []
    assert mayhem.broker.client.llen("fleet") == 0


# During the shop's hold: it has paid, and nobody has recorded it


TAKEOVER_WITHIN = 10.0


def promptly() -> float:
    """G6's two seconds, which are those of an idle machine: stretched by the load per core, and
    always less than what `taken_over_after` waits for."""
    return min(2.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), 0.8 * TAKEOVER_WITHIN)


def taken_over_after(database: Database, order: str, epoch: int, since: float) -> float:
    """Seconds until another claim has ended the order's thread."""
    sql = "SELECT epoch > %s AND status = 'done' FROM fleet.threads WHERE thread_id = %s"
    eventually(lambda: database.value(sql, epoch, f"refund:{order}"), timeout=TAKEOVER_WITHIN)
    return time.monotonic() - since


def test_a_process_killed_during_its_call_is_replaced_promptly(it: Standing) -> None:
    """The call is sent again under the same request id, and the shop knows it."""
    (order,) = held_orders(it.shop, it.fleet, 1)
    status = it.fleet.status(f"refund:{order}")
    since = time.monotonic()
    assert status.owner is not None
    os.kill(slot_pid(status.owner), signal.SIGKILL)
    assert taken_over_after(it.database, order, status.epoch, since) < promptly()
    refunded_and_notified_once(it.shop, order)
    assert len(it.shop.books(order)["calls"]["refunds"]["by_key"]) == 1
    assert it.shop.calls("refunds", order) == 2
    assert crashes(it.database, order) == [1]


def test_a_worker_with_one_process_replaces_it_promptly(
    workers: Workers, database: Database, fleet: Fleet, shop: Shop
) -> None:
    """Nobody else is there: a new process of the same pool takes over, however often."""
    (worker,) = start(workers, 1, concurrency=1)
    for _ in range(3):
        (order,) = held_orders(shop, fleet, 1)
        epoch, since = fleet.status(f"refund:{order}").epoch, time.monotonic()
        worker.kill_pool_child()
        assert taken_over_after(database, order, epoch, since) < promptly()
        refunded_and_notified_once(shop, order)


@pytest.mark.parametrize("victim", ["follower", "leader", "parent of the leader"])
def test_a_worker_killed_beside_an_idle_one_is_replaced_promptly(
    workers: Workers, database: Database, broker: Broker, fleet: Fleet, shop: Shop, victim: str
) -> None:
    """Its whole process group, with the lead of the sweep and without; or the parent alone,
    which takes its pool along."""
    pair = start(workers, 2, concurrency=1)
    leads = leader(database)
    dies, idle = sorted(pair, key=lambda w: (w.name == leads) != ("leader" in victim))
    orders = held_orders(shop, fleet, 2)
    by_worker = {holder(database, workers, order): order for order in orders}
    lost = by_worker[dies]
    shop.release(by_worker[idle])
    fleet.wait(f"refund:{by_worker[idle]}", 30)
    epoch, since = fleet.status(f"refund:{lost}").epoch, time.monotonic()
    pool = [psutil.Process(pid) for pid in dies.pool_pids()]
    if victim.startswith("parent"):
        os.kill(dies.pid, signal.SIGKILL)
    else:
        dies.kill()
    assert taken_over_after(database, lost, epoch, since) < promptly()
    gone(pool)
    refunded_and_notified_once(shop, *orders)
    assert crashes(database, lost) == [1]
    assert leader(database) == idle.name
    assert eventually(lambda: is_at_rest(database, broker))


def test_a_fleet_killed_as_a_whole_goes_on_when_it_is_started_again(
    workers: Workers, database: Database, broker: Broker, fleet: Fleet, shop: Shop
) -> None:
    """What waited waits, what was under way goes on, what was accepted meanwhile starts."""
    pair = start(workers, 2, concurrency=1)
    waiting = shop.new_order(ABOVE)
    fleet.submit("refund", waiting, INPUT)
    question = fleet.wait(f"refund:{waiting}", 30).question
    orders = [*held_orders(shop, fleet, 2), shop.new_order(BELOW), shop.new_order(BELOW)]
    fleet.submit("refund", orders[2], INPUT)
    for worker in pair:
        worker.kill()
    fleet.submit("refund", orders[3], INPUT)
    assert question is not None
    fleet.answer(f"refund:{waiting}", question.question_id, "approved")
    start(workers, 2, concurrency=1)
    for order in [*orders, waiting]:
        assert fleet.wait(f"refund:{order}", 30).status == "done"
    refunded_and_notified_once(shop, *orders, waiting)
    assert [crashes(database, o) for o in [*orders, waiting]] == [[1], [1], [0], [0], [0, 0]]
    assert forks(database) == []
    assert eventually(lambda: is_at_rest(database, broker))


# The threads pool: the whole worker dies


def test_in_the_threads_pool_a_kill_costs_nothing_either(
    databases: Databases, stack: Stack, shop: Shop, tmp_path: Path
) -> None:
    """One worker after the other dies at a point, with all of its turns; the last ends them."""
    points = ("claim.after_lock", "effect.after_call", "turn.before_commit")
    with standing(databases, stack, shop, tmp_path) as it:
        it.disarm(points)
        armed = ";".join(f"{p}=kill" for p in points)
        group = it.start(len(points) + 1, pool="threads", concurrency=2, failpoints=armed)
        for dead, point in enumerate(points, 1):
            it.arm(point)
            orders = [it.order() for _ in range(4)]
            for order in orders:
                it.ends(f"refund:{order}")
            refunded_and_notified_once(shop, *orders)
            assert sum(w.child.poll() is not None for w in group) == dead
            assert 1 <= sum(sum(crashes(it.database, o)) for o in orders) <= 2
        assert forks(it.database) == []
        assert eventually(lambda: is_at_rest(it.database, it.broker))


# A message that kills whoever touches it


def deadly_graphs(folder: Path, database: Database) -> Path:
    """A graphs file with the refund graph and one that ends its process."""
    graphs = write_graphs(
        folder, deadly=f"{ROOT}/tests/graphs/deadly.py:graph", refund="graphs.refund:graph"
    )
    database.register(graphs)
    return graphs


@pytest.fixture(scope="module")
def deadly_fleet(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("deadly")
    with standing(databases, stack, _shop, folder) as made:
        made.start(1, concurrency=2, graphs_file=deadly_graphs(folder, made.database))
        yield made


def quarantined(fleet: Fleet, thread: str) -> bool:
    """Whether the deadly message is set aside as it should be."""
    status = fleet.wait(thread, 30)
    message = status.messages[0]
    assert (status.status, message.status, message.crashes) == ("failed", "dead", 3)
    assert status.last_error == message.error
    assert (message.error or "").startswith("quarantined: 3 attempts at it were lost")
    return True


def test_a_message_that_kills_its_process_is_quarantined(
    deadly_fleet: Standing, shop: Shop
) -> None:
    """After three crashes, with its reason; threads beside it are not harmed meanwhile."""
    it = deadly_fleet
    it.fleet.submit("deadly", "x", {"user_id": "u_42"})
    orders = [it.order() for _ in range(6)]
    assert quarantined(it.fleet, "deadly:x")
    for order in orders:
        it.ends(f"refund:{order}")
        assert crashes(it.database, order) == [0]
    refunded_and_notified_once(shop, *orders)
    assert eventually(lambda: is_at_rest(it.database, it.broker))


def test_mail_behind_a_quarantined_message_waits(deadly_fleet: Standing) -> None:
    """It may depend on it; other threads of the same graph go on."""
    it = deadly_fleet
    it.fleet.submit("deadly", "y", {"user_id": "u_42"})
    it.fleet.send("deadly:y", {"user_id": "harmless"})
    assert quarantined(it.fleet, "deadly:y")
    it.fleet.submit("deadly", "z", {"user_id": "harmless"})
    it.ends("deadly:z")
    assert [row[:4] for row in open_mail(it.database)] == [("deadly:y", 2, "input", "pending")]
    sql = "SELECT claimed_epoch FROM fleet.messages WHERE thread_id = 'deadly:y' AND seq = 2"
    assert it.database.value(sql) is None


def test_in_the_threads_pool_the_innocent_are_not_counted_out_with_the_deadly(
    databases: Databases, stack: Stack, shop: Shop, tmp_path: Path
) -> None:
    """Those beside it at its first crash have one; after that it runs alone."""
    with standing(databases, stack, shop, tmp_path) as it:
        graphs = deadly_graphs(tmp_path, it.database)
        group = it.start(4, pool="threads", concurrency=2, graphs_file=graphs)
        it.fleet.submit("deadly", "x", {"user_id": "u_42"})
        orders = [it.order() for _ in range(8)]
        assert quarantined(it.fleet, "deadly:x")
        for order in orders:
            it.ends(f"refund:{order}")
            assert crashes(it.database, order) in ([0], [1])
        refunded_and_notified_once(shop, *orders)
        assert sum(w.child.poll() is None for w in group) == 1
        assert eventually(lambda: is_at_rest(it.database, it.broker))
