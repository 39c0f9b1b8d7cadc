"""A message that eats its process's memory is set aside with its reason, and can be replayed.

Messages that kill their process otherwise, and the threads pool: tests/acceptance/test_kills.py.
"""

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from producers import Fleet
from producers.status import ThreadStatus
from tests.acceptance.standing import INPUT, crashes, refunded_and_notified_once
from tests.harness import ROOT, Database, Shop, write_graphs
from tests.worker_processes import Worker, Workers

#: Bytes that a process may take beyond what it has at its start.
MORE = 200 << 20
ORDERS = 6


@pytest.fixture
def fleet_settings(
    fleet_settings: dict[str, Any], database: Database, tmp_path: Path
) -> dict[str, Any]:
    hungry = f"{ROOT}/tests/graphs/hungry.py:graph"
    path = write_graphs(tmp_path, refund="graphs.refund:graph", hungry=hungry)
    database.register(path)
    return fleet_settings | {"graphs_file": path, "backoff_base": 0.1}


@contextmanager
def out_of_memory_killer(worker: Worker) -> Iterator[list[int]]:
    """SIGKILL to each process of the worker's group that has grown too large, as the kernel
    does to a group that has run into its limit; the list says to which."""
    most = psutil.Process(worker.pid).memory_info().rss + MORE
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            for pid in {worker.pid, *worker.pool_pids()} - {*killed}:
                with contextlib.suppress(psutil.Error):
                    if psutil.Process(pid).memory_info().rss > most:
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield killed
    finally:
        over.set()
        watcher.join()


def limit_memory(worker: Worker) -> None:
    """Let each process of the worker, and those to come, have little more than it has."""
    for pid in [worker.pid, *worker.pool_pids()]:
        most = psutil.Process(pid).memory_info().vms + MORE
        resource.prlimit(pid, resource.RLIMIT_AS, (most, most))


def quarantined(fleet: Fleet, thread: str, reason: str) -> ThreadStatus:
    status = fleet.wait(thread, 60)
    (message,) = status.messages
    assert (status.status, message.status) == ("failed", "dead")
    assert (message.error or "").startswith(reason)
    assert status.last_error == message.error
    return status


def submit_innocents(fleet: Fleet, shop: Shop) -> list[str]:
    orders = [shop.new_order() for _ in range(ORDERS)]
    fleet.submit_many(("refund", order, INPUT) for order in orders)
    return orders


def unharmed(
    fleet: Fleet, database: Database, shop: Shop, orders: list[str], most: int = 0
) -> None:
    """Done, once each; most: attempts that they may have lost."""
    for order in orders:
        assert fleet.wait(f"refund:{order}", 30).status == "done"
        assert sum(crashes(database, order)) <= most
    refunded_and_notified_once(shop, *orders)


def replayed(fleet: Fleet, thread: str, file: Path) -> None:
    """Once what was wrong is put right."""
    file.unlink()
    fleet.retry(thread)
    status = fleet.wait(thread, 30)
    assert (status.status, status.messages[0].crashes, status.last_error) == ("done", 0, None)


@pytest.mark.skipif("sys.platform != 'linux'", reason="reads the size of processes in /proc")
def test_a_message_that_is_killed_for_its_memory_is_quarantined(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers, tmp_path: Path
) -> None:
    """Within three attempts; threads beside it are not harmed, and a retry replays it."""
    worker = workers.start(concurrency=2)
    file = tmp_path / "hungry"
    file.touch()
    with out_of_memory_killer(worker) as killed:
        thread = fleet.submit("hungry", "A", {"user_id": str(file)}).thread_id
        orders = submit_innocents(fleet, shop)
        quarantined(fleet, thread, "quarantined: 3 attempts at it were lost")
        assert len(killed) == 3 and worker.pid not in killed
        unharmed(fleet, database, shop, orders)
    replayed(fleet, thread, file)


@pytest.mark.skipif("sys.platform != 'linux'", reason="limits another process's memory")
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_message_that_gets_no_more_memory_is_quarantined(
    pool: str, fleet: Fleet, database: Database, shop: Shop, workers: Workers, tmp_path: Path
) -> None:
    """A MemoryError counts as a crash though the process lives. In the threads pool whoever is
    beside it may get one too, but only once: from then on it runs alone."""
    worker = workers.start(pool=pool, concurrency=2)
    limit_memory(worker)
    before = [worker.pid, *worker.pool_pids()]
    file = tmp_path / "hungry"
    file.touch()
    thread = fleet.submit("hungry", "A", {"user_id": str(file)}).thread_id
    orders = submit_innocents(fleet, shop)
    status = quarantined(fleet, thread, "quarantined: 3 attempts at it ran out of memory")
    assert (status.last_error or "").endswith("MemoryError")
    unharmed(fleet, database, shop, orders, most=1 if pool == "threads" else 0)
    assert [worker.pid, *worker.pool_pids()] == before
    replayed(fleet, thread, file)
