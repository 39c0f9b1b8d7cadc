"""The numbers of docs/reliability.md that take no soak: each test prints what it has measured."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producers import Fleet
from tests.acceptance.standing import INPUT, refunded_and_notified_once, start
from tests.chaos.test_quarantine import out_of_memory_killer
from tests.harness import ROOT, Broker, Database, Shop, eventually, write_graphs
from tests.worker_processes import Worker, Workers

WAITING = 500
BACKLOG = 5000
#: Wake-ups for each message of a backlog, at most.
MOST_WAKE_UPS = 1.1
DEPLOYS = 5
INNOCENT = 50

Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def printed(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)

    return printed


@pytest.fixture
def fleet_settings(
    fleet_settings: dict[str, Any], database: Database, tmp_path: Path
) -> dict[str, Any]:
    names = {name: f"{ROOT}/tests/graphs/{name}.py:graph" for name in ("hungry", "deadly")}
    path = write_graphs(tmp_path, refund="graphs.refund:graph", **names)
    database.register(path)
    return fleet_settings | {"graphs_file": path, "backoff_base": 0.1}


def not_done(database: Database) -> int:
    sql = "SELECT count(*) FROM fleet.messages WHERE status <> 'done'"
    return int(database.value(sql))


def submit(fleet: Fleet, shop: Shop, number: int) -> list[str]:
    orders = [shop.new_order() for _ in range(number)]
    fleet.submit_many([("refund", order, INPUT) for order in orders])
    return orders


def pushed(broker: Broker) -> int:
    """Pushes to any list of the broker so far, whoever made them."""
    stats: dict[str, Any] = broker.client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in PUSHES)


PUSHES = ("lpush", "rpush")


def test_a_wiped_broker_costs_none_of_five_hundred_waiting_messages(
    fleet: Fleet, database: Database, broker: Broker, shop: Shop, workers: Workers, say: Say
) -> None:
    """FLUSHALL while they wait: all are done, and nobody did anything about it."""
    start(workers, 2, concurrency=2)
    orders = submit(fleet, shop, WAITING)
    broker.client.flushall()
    begun, left = time.monotonic(), not_done(database)
    assert left > WAITING * 0.8
    eventually(lambda: not_done(database) == 0, 90, 0.1)
    took = time.monotonic() - begun
    say(f"FLUSHALL with {left} of {WAITING} accepted waiting: all done {took:.1f} s later")
    refunded_and_notified_once(shop, *orders)


def test_a_backlog_is_not_doubled_by_the_sweep(
    fleet: Fleet, database: Database, broker: Broker, workers: Workers, say: Say
) -> None:
    """Twenty minutes without workers: then at most 1.1 wake-ups for each message."""
    before = pushed(broker)
    fleet.submit_many([("deadly", f"K{n}", {"user_id": "harmless"}) for n in range(BACKLOG)])
    database.fetch("SELECT fleet.move_clock('20 minutes')")
    begun = time.monotonic()
    start(workers, 2, concurrency=2, sweep_interval=0.1)
    eventually(lambda: not_done(database) == 0, 100, 0.25)
    took, rate = time.monotonic() - begun, (pushed(broker) - before) / BACKLOG
    say(f"{BACKLOG} messages, 20 minutes late: {rate:.3f} wake-ups each, done in {took:.0f} s")
    assert rate <= MOST_WAKE_UPS
    eventually(lambda: broker.client.llen("fleet") == 0)


@pytest.mark.timeout(240)
@pytest.mark.skipif("sys.platform != 'linux'", reason="reads the size of processes in /proc")
def test_deploys_an_outage_and_a_memory_kill_quarantine_the_culprit_only(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers, tmp_path: Path, say: Say
) -> None:
    """In the threads pool, where all turns of a process die with it."""
    file = tmp_path / "hungry"
    file.touch()
    shop.fault("notifications", "slow", seconds=0.2)
    orders = submit(fleet, shop, INNOCENT)
    killed = kill_for_memory(fleet, database, workers, file)
    now = workers.start(pool="threads", concurrency=4)
    for _ in range(DEPLOYS):
        orders += submit(fleet, shop, INNOCENT)
        now = deployed(workers, now)
    orders += submit(fleet, shop, INNOCENT)
    failures = outage(database, shop, minutes=10)
    eventually(lambda: not_done(database) == 1, 90, 0.1)
    dead = database.fetch("SELECT thread_id, error FROM fleet.messages WHERE status = 'dead'")
    say(
        f"{DEPLOYS} deploys, 10 minutes of 503 ({failures} attempts), {killed} processes killed "
        f"for their memory, {len(orders)} others: {len(dead)} quarantined"
    )
    ((thread, error),) = dead
    assert thread == "hungry:culprit" and re.match("quarantined: ", error)
    assert all(status == "done" for _, status in statuses(database, orders))
    refunded_and_notified_once(shop, *orders)


def statuses(database: Database, orders: list[str]) -> list[tuple[str, str]]:
    sql = "SELECT key, status FROM fleet.threads WHERE key = ANY(%s)"
    return [(key, status) for key, status in database.fetch(sql, orders)]


def kill_for_memory(fleet: Fleet, database: Database, workers: Workers, file: Path) -> int:
    """One worker, started anew each time that it is killed, until its turn comes no more."""
    fleet.submit("hungry", "culprit", {"user_id": str(file)})
    sql = "SELECT status FROM fleet.messages WHERE thread_id = 'hungry:culprit'"
    kills = 0
    while database.value(sql) != "dead":
        worker = workers.start(pool="threads", concurrency=4)
        with out_of_memory_killer(worker) as killed:
            eventually(
                lambda w=worker: w.child.poll() is not None or database.value(sql) == "dead",  # type: ignore[misc]
                60,
            )
        kills += len(killed)
        assert kills <= 3, "it is not put aside"
    worker.terminate()
    return kills


def deployed(workers: Workers, now: Worker) -> Worker:
    """A new worker beside that one, which is told to stop in the middle of its work."""
    new = workers.start(pool="threads", concurrency=4)
    assert now.terminate() == 0
    return new


def outage(database: Database, shop: Shop, minutes: int) -> int:
    """The shop answers 503 for so long by the fleet's clock; attempts that failed by it."""
    failed = "SELECT coalesce(sum(failures), 0) FROM fleet.messages"
    for target in ("orders", "refunds", "notifications"):
        shop.fault(target, "fail_before", status=503)
    for _ in range(minutes):
        before = database.value(failed)
        eventually(lambda b=before: database.value(failed) > b, 20, 0.1)  # type: ignore[misc]
        database.fetch("SELECT fleet.move_clock('1 minute')")
    count = int(database.value(failed))
    shop.clear_faults()
    database.fetch("SELECT fleet.move_clock('5 minutes')")
    return count
