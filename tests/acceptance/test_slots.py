"""A worker's slots: the queues that they serve, and what becomes of one that hangs."""

import json
from pathlib import Path
from typing import Any

import pytest

from producers import Fleet
from producers.wakeup import NO_LIMIT, Wake, push
from tests.harness import ROOT, Broker, Database, eventually, write_graphs
from tests.worker_processes import Workers

HARMLESS = {"user_id": "harmless"}


@pytest.fixture
def graphs_file(tmp_path: Path, database: Database) -> Path:
    """Two graphs, each with a queue of its own, and one that hangs."""
    graph = f"{ROOT}/tests/graphs/deadly.py:graph"
    graphs: dict[str, Any] = {n: {"path": graph, "queue": n} for n in ("fleet", "slow")}
    graphs["hanging"] = f"{ROOT}/tests/graphs/hanging.py:graph"
    path = tmp_path / "graphs.json"
    path.write_text(json.dumps({"graphs": graphs}))
    database.register(path)
    return path


def begun(database: Database) -> list[str]:
    """Queues of the mail that a worker has taken."""
    found = database.fetch("SELECT DISTINCT queue FROM fleet.messages WHERE status <> 'pending'")
    return sorted(queue for (queue,) in found)


def test_a_worker_of_one_queue_leaves_the_others_alone(
    graphs_file: Path, workers: Workers, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """`-Q slow` takes nothing from the default queue, also not straight from Postgres."""
    fleet.submit("fleet", "A", HARMLESS)
    workers.start("-Q", "slow", concurrency=1, graphs_file=graphs_file)
    slow = fleet.submit("slow", "A", HARMLESS)
    assert fleet.wait(slow.thread_id, 20).status == "done"
    # The task has returned when its wake-up is no more.
    eventually(lambda: broker.client.hlen("unacked") == 0)
    assert begun(database) == ["slow"]


def test_a_worker_of_two_queues_finds_the_mail_of_both(
    graphs_file: Path, workers: Workers, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """One wake-up, for either queue, is enough for the due mail of both."""
    found = [fleet.submit(queue, key, HARMLESS) for queue in ("fleet", "slow") for key in "ABC"]
    broker.client.flushdb()
    workers.start("-Q", "fleet,slow", concurrency=1, graphs_file=graphs_file, redelivery_after=600)
    push(broker.client, [Wake("slow", found[-1].thread_id, NO_LIMIT)])
    for receipt in found:
        assert fleet.wait(receipt.thread_id, 20).status == "done"


# Nodes that do not return

QUICK = {"turn_timeout": 1, "pulse_interval": 0.1, "hung_grace": 0.5}
GIVEN_UP = "does not return although its turn was taken away"


def hang(fleet: Fleet, key: str, folder: Path) -> str:
    """A thread whose node hangs, once it does."""
    begun = folder / f"{key}-hangs"
    thread = fleet.submit("hanging", key, {"user_id": str(begun)}).thread_id
    eventually(begun.exists, 20)
    return thread


def test_a_node_that_does_not_return_costs_its_process(
    graphs_file: Path, workers: Workers, fleet: Fleet, tmp_path: Path
) -> None:
    """The only slot of a worker is free again: a new process finishes the thread."""
    worker = workers.start(concurrency=1, graphs_file=graphs_file, **QUICK)
    (before,) = worker.pool_pids()
    thread = hang(fleet, "A", tmp_path)
    assert fleet.wait(thread, 20).status == "done"
    assert f"a node of {thread} {GIVEN_UP}: this process ends" in worker.log()
    assert before not in worker.pool_pids()
    assert worker.child.poll() is None


def test_a_process_of_threads_ends_when_all_of_its_slots_hang(
    graphs_file: Path, workers: Workers, fleet: Fleet, tmp_path: Path
) -> None:
    """At once: there is nothing to wait for. (Where some hang: chaos/test_deadlines.py.)"""
    worker = workers.start(pool="threads", concurrency=1, graphs_file=graphs_file, **QUICK)
    thread = hang(fleet, "A", tmp_path)
    assert worker.child.wait(20) == 1
    assert f"a node of {thread} {GIVEN_UP}: this process ends" in worker.log()
    workers.start(concurrency=1, graphs_file=graphs_file)
    assert fleet.wait(thread, 20).status == "done"


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_whatever_a_node_raises_costs_no_slot(
    pool: str, tmp_path: Path, workers: Workers, fleet: Fleet, database: Database
) -> None:
    """Errors that are no Exceptions are judged, and the worker's only slot goes on."""
    raising = ("halts", "acloses", "closes", "exits", "interrupts", "fills")
    path = write_graphs(tmp_path, **{n: f"{ROOT}/tests/graphs/unruly.py:{n}" for n in raising})
    database.register(path)
    worker = workers.start(pool=pool, concurrency=1, graphs_file=path, backoff_max=0.1)
    for name in raising:
        found = fleet.wait(fleet.submit(name, "A", {}).thread_id, 20)
        assert (found.status, found.messages[0].status) == ("failed", "dead"), name
        assert "lost with their worker" not in (found.last_error or ""), name
    assert worker.child.poll() is None
    assert (
        database.value(
            "SELECT count(*) FROM fleet.threads t JOIN pg_locks l ON l.locktype = 'advisory' AND "
            "((l.classid::bigint << 32) | l.objid::bigint) = fleet.thread_lock(t.thread_id)"
        )
        == 0
    )
