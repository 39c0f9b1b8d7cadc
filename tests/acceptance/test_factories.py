"""Graphs that async functions and context managers make, killed at every superstep.

Each kill takes what was opened with it, and the next process opens its own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from infra.devservers import Stack
from tests.acceptance.standing import Standing, forks, standing
from tests.harness import ROOT, Databases, Shop, write_graphs

#: Graph → who speaks in its log.
SPEAKERS = {
    "awaited": "awaited",
    "awaited_for": "red",
    "opened": "opened",
    "opened_for": "red",
    "entered": "entered",
}
NODES = ("first", "second", "ask", "last")


@pytest.fixture
def fleet(databases: Databases, stack: Stack, _shop: Shop, tmp_path: Path) -> Iterator[Standing]:
    file = write_graphs(tmp_path, **{n: f"{ROOT}/tests/graphs/factories.py:{n}" for n in SPEAKERS})
    with standing(databases, stack, _shop, tmp_path, graphs_file=file) as made:
        made.database.register(file)
        yield made


def log(fleet: Standing, thread: str) -> Any:
    """What the thread's last checkpoint has."""
    with fleet.database.connect(row_factory=dict_row) as conn:
        found = PostgresSaver(conn).get_tuple({"configurable": {"thread_id": thread}})
    assert found is not None
    return found.checkpoint["channel_values"]["log"]


@pytest.mark.timeout(200)
def test_what_a_factory_opened_is_opened_again_after_each_kill(fleet: Standing) -> None:
    """Each graph ends as without a kill, on one line of checkpoints."""
    fleet.start(
        1,
        concurrency=2,
        failpoints="turn.superstep@=kill;turn.at_interrupt@=kill;turn.before_commit@=kill",
        max_crashes=1000,
        flush_after=60,
    )
    config = {"configurable": {"line": "red"}}
    threads = {n: fleet.fleet.submit(n, "k", {"log": []}, config=config) for n in SPEAKERS}
    for name, receipt in threads.items():
        status = fleet.fleet.wait(receipt.thread_id, 60)
        assert status.question is not None, (name, status)
        fleet.fleet.answer(receipt.thread_id, status.question.question_id, "yes")
    for name, speaker in SPEAKERS.items():
        thread = threads[name].thread_id
        assert fleet.fleet.wait(thread, 60).status == "done", name
        said = [f"{speaker}: {text}" for text in ("first", "second", "yes", "3 before")]
        assert log(fleet, thread) == said, name
        hits = [unquote(hit) for _, hit, _ in fleet.workers.hits()]
        kills = sum(hit.startswith(f"turn.superstep@{thread}/") for hit in hits)
        assert kills >= len(NODES), name
    assert forks(fleet.database) == []
