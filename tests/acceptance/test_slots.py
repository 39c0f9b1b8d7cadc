"""A worker's slots: the queues that they serve, and what becomes of one that hangs."""

import json
from pathlib import Path

import pytest

from producers import Fleet
from producers.wakeup import NO_LIMIT, Wake, push
from tests.harness import ROOT, Broker, Database, eventually
from tests.worker_processes import Workers

HARMLESS = {"user_id": "harmless"}


@pytest.fixture
def graphs_file(tmp_path: Path, database: Database) -> Path:
    """Two graphs, each with a queue of its own."""
    graph = f"{ROOT}/tests/graphs/deadly.py:graph"
    graphs = {name: {"path": graph, "queue": name} for name in ("fleet", "slow")}
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
