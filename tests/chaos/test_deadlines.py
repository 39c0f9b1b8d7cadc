"""Turns that make no progress are taken away, whatever keeps them, and no slot is lost.

Calls that hang, processes and leaders that are stopped: tests/acceptance/test_fence.py;
hosts that vanish without a word: tests/acceptance/test_outages.py.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from producers import Fleet
from tests.acceptance.standing import INPUT, crashes, refunded_and_notified_once
from tests.harness import ROOT, Database, Shop, eventually, write_graphs
from tests.worker_processes import Workers
from workers.hung import Hung


@pytest.fixture
def fleet_settings(
    fleet_settings: dict[str, Any], database: Database, tmp_path: Path
) -> dict[str, Any]:
    graphs = {n: f"{ROOT}/tests/graphs/{n}.py:graph" for n in ("forking", "hanging")}
    path = write_graphs(tmp_path, refund="graphs.refund:graph", **graphs)
    database.register(path)
    return fleet_settings | {"graphs_file": path}


@pytest.fixture
def forked(tmp_path: Path) -> Iterator[Callable[[], psutil.Process]]:
    """The process that the graph `forking` leaves behind, killed afterwards."""
    file = tmp_path / "forked"

    def found() -> psutil.Process:
        return psutil.Process(int(eventually(lambda: file.exists() and file.read_text(), 20)))

    yield found
    if file.exists():
        os.kill(int(file.read_text()), signal.SIGKILL)


def test_a_process_that_a_node_has_forked_keeps_no_turn(
    fleet: Fleet, workers: Workers, tmp_path: Path, forked: Callable[[], psutil.Process]
) -> None:
    """It has a copy of the killed slot's socket; the turn goes on at once all the same."""
    workers.start(concurrency=1)
    thread = fleet.submit("forking", "A", {"user_id": str(tmp_path / "forked")}).thread_id
    assert forked().is_running()
    found = fleet.wait(thread, 20)
    assert (found.status, found.messages[0].crashes) == ("done", 1)
    assert forked().is_running()


def hang(fleet: Fleet, key: str, folder: Path) -> str:
    """A thread whose node hangs, once it does."""
    begun = folder / f"{key}-hangs"
    thread = fleet.submit("hanging", key, {"user_id": str(begun)}).thread_id
    eventually(begun.exists, 20)
    return thread


def test_a_process_of_threads_leaves_when_a_tenth_of_its_slots_hang(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers, tmp_path: Path
) -> None:
    """One of two: it takes no more turns and ends, but its other turn goes on first."""
    settings = {"turn_timeout": 4, "pulse_interval": 0.1, "hung_grace": 1}
    worker = workers.start(pool="threads", concurrency=2, **settings)
    # Never without progress for as long as the timeout, and longer than what hangs gets.
    order = shop.new_order()
    for target in ("orders", "refunds", "notifications"):
        shop.fault(target, "slow", seconds=2.5, order_id=order)
    thread = hang(fleet, "A", tmp_path)
    fleet.submit("refund", order, INPUT)
    assert eventually(lambda: "slots hang: it takes no more turns" in worker.log(), 20)
    later = shop.new_order()
    fleet.submit("refund", later, INPUT)
    assert worker.child.poll() is None
    assert worker.child.wait(20) == 1
    assert database.fetch("SELECT worker FROM fleet.workers") == []
    assert shop.calls("refunds", order) == 1
    assert later not in shop.books()["calls"]["orders"]["by_order"]
    workers.start(concurrency=1)
    for each in (order, later):
        assert fleet.wait(f"refund:{each}", 20).status == "done"
        assert crashes(database, each) == [0]
    found = fleet.wait(thread, 20)
    assert (found.status, found.messages[0].crashes) == ("done", 1)
    refunded_and_notified_once(shop, order, later)


def test_fewer_than_a_tenth_may_hang() -> None:
    """One of eleven; at the second the process leaves, and it leaves once."""
    left: list[int] = []
    hung = Hung()
    hung.slots = 11
    hung.leave = lambda hanging: left.append(hanging())
    hung.give_up(1, "refund:A")
    assert hung.hanging() == 1
    hung.give_up(2, "refund:B")
    assert eventually(lambda: left == [2])
    hung.returned(2)
    hung.give_up(3, "refund:C")
    assert (hung.hanging(), left) == (2, [2])
