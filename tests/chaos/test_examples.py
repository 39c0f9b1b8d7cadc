"""LangGraph's documented graphs, with no word of ours in them, killed at every superstep.

Stories are told several at the same time on one worker. The process of its pool is killed (-9)
whenever a thread is about to run a superstep for the first time: once with all that was not
yet committed lost, and killed too when about to ask or to commit the end of a turn; once
with the keeper committing whatever it can.
"""

import asyncio
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from infra.devservers import Stack
from tests.acceptance.standing import Standing, forks, standing
from tests.acceptance.stories import GRAPHS_FILE, STORIES, alone, on_fleet, plain, registry
from tests.harness import Databases, Shop

SUPERSTEPS = "turn.superstep@=kill"
ENDS = "turn.at_interrupt@=kill;turn.before_commit@=kill"
#: Each story by itself would need a fleet of its own; all at once keep one process of the tests
#: busy for minutes.
PARTS = [[*STORIES][n::3] for n in range(3)]


@dataclass
class Told:
    """Stories, told on one fleet."""

    fleet: Standing
    threads: dict[str, str]

    def state(self, name: str) -> Any:
        with self.fleet.database.connect(row_factory=dict_row) as conn:
            graph = registry().get(name).graph.copy({"checkpointer": PostgresSaver(conn)})
            config: Any = {"configurable": {"thread_id": self.threads[name]}}
            return plain(graph.get_state(config).values)

    def kills(self, name: str, point: str) -> int:
        """How often a process was killed at this point of the story's thread."""
        found = [unquote(hit) for _, hit, _ in self.fleet.workers.hits()]
        return sum(hit.startswith(f"{point}@{self.threads[name]}/") for hit in found)

    def supersteps(self, name: str) -> int:
        """How many checkpoints of the root graph led to another one."""
        sql = """SELECT count(DISTINCT parent_checkpoint_id) FROM checkpoints
            WHERE thread_id = %s AND checkpoint_ns = '' AND metadata->>'source' = 'loop'"""
        return int(self.fleet.database.value(sql, self.threads[name]))


@pytest.fixture
def fleet(databases: Databases, stack: Stack, _shop: Shop, tmp_path: Path) -> Iterator[Standing]:
    with standing(databases, stack, _shop, tmp_path, graphs_file=GRAPHS_FILE) as made:
        made.database.register(GRAPHS_FILE)
        yield made


def told(fleet: Standing, names: Iterable[str]) -> Told:
    """The stories of these names, told at the same time."""
    with ThreadPoolExecutor(len(STORIES)) as pool:
        threads = {name: pool.submit(on_fleet, fleet.fleet, name) for name in names}
    return Told(fleet, {name: thread.result() for name, thread in threads.items()})


@pytest.mark.timeout(600)
@pytest.mark.parametrize("names", PARTS, ids="+".join)
@pytest.mark.parametrize("lost", [True, False], ids=["lost", "kept"])
def test_kills_at_every_superstep_change_nothing(
    fleet: Standing, lost: bool, names: list[str]
) -> None:
    """Each story ends in the state of a run on stock LangGraph without faults."""
    fleet.start(
        1,
        concurrency=4,
        failpoints=f"{SUPERSTEPS};{ENDS}" if lost else SUPERSTEPS,
        max_crashes=1000,
        flush_after=60 if lost else 0.001,
    )
    found = told(fleet, names)
    for name in names:
        story = STORIES[name]
        assert found.state(name) == asyncio.run(alone(name)), name
        assert found.kills(name, "turn.superstep") >= found.supersteps(name) > 0, name
        turns = len(story.inputs) + len(story.answers)
        assert found.kills(name, "turn.before_commit") >= turns * lost, name
    assert [row for row in forks(fleet.database) if row[1] == ""] == []
    statuses = fleet.database.fetch("SELECT DISTINCT status FROM fleet.messages")
    assert statuses == [("done",)]


def test_graphs_share_a_process_in_the_threads_pool(fleet: Standing) -> None:
    """Side by side in one process, sync and async, each with a slot of its own."""
    fleet.start(1, pool="threads", concurrency=8)
    found = told(fleet, STORIES)
    for name in STORIES:
        assert found.state(name) == asyncio.run(alone(name)), name
