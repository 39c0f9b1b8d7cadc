"""LangGraph's documented graphs, with no word of ours in them, killed at every superstep.

All stories are told at the same time on one worker. The process of its pool is killed (-9)
whenever a thread is about to run a superstep for the first time: once with all that was not
yet committed lost, and killed too when about to ask or to commit the end of a turn; once
with the keeper committing whatever it can.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
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


@dataclass
class Told:
    """All stories, told on one fleet."""

    fleet: Standing
    threads: dict[str, Future[str]]
    lost: bool

    def state(self, name: str) -> Any:
        thread = self.threads[name].result()
        with self.fleet.database.connect(row_factory=dict_row) as conn:
            graph = registry().get(name).graph.copy({"checkpointer": PostgresSaver(conn)})
            return plain(graph.get_state({"configurable": {"thread_id": thread}}).values)

    def killed_at(self, name: str) -> list[tuple[str, str]]:
        """(point, place) of each kill in the story's thread."""
        found = [unquote(hit).partition("@") for _, hit, _ in self.fleet.workers.hits()]
        return [(point, at) for point, _, at in found if at.startswith(f"{name}:")]

    def supersteps(self, name: str) -> int:
        """How many checkpoints of the root graph led to another one."""
        sql = """SELECT count(DISTINCT parent_checkpoint_id) FROM checkpoints
            WHERE thread_id = %s AND checkpoint_ns = '' AND metadata->>'source' = 'loop'"""
        return int(self.fleet.database.value(sql, self.threads[name].result()))


@pytest.fixture(scope="module", params=["lost", "kept"])
def told(
    request: pytest.FixtureRequest,
    databases: Databases,
    stack: Stack,
    _shop: Shop,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Told]:
    lost = request.param == "lost"
    folder = tmp_path_factory.mktemp(request.param)
    with standing(databases, stack, _shop, folder, graphs_file=GRAPHS_FILE) as made:
        made.database.register(GRAPHS_FILE)
        made.start(
            1,
            concurrency=4,
            failpoints=f"{SUPERSTEPS};{ENDS}" if lost else SUPERSTEPS,
            max_crashes=1000,
            flush_after=60 if lost else 0.001,
        )
        with ThreadPoolExecutor(len(STORIES)) as pool:
            threads = {name: pool.submit(on_fleet, made.fleet, name) for name in STORIES}
        yield Told(made, threads, lost)


@pytest.mark.parametrize("name", STORIES)
def test_kills_at_every_superstep_change_nothing(told: Told, name: str) -> None:
    """The state at the end is that of a run on stock LangGraph without faults."""
    assert told.state(name) == asyncio.run(alone(name))


@pytest.mark.parametrize("name", STORIES)
def test_each_superstep_was_met_with_a_kill(told: Told, name: str) -> None:
    """Of the root graph's, and of subgraphs' too; and so was the end of each turn."""
    points = [point for point, _ in told.killed_at(name)]
    assert points.count("turn.superstep") >= told.supersteps(name) > 0
    turns = len(STORIES[name].inputs) + len(STORIES[name].answers)
    assert points.count("turn.before_commit") >= (turns if told.lost else 0)


def test_nothing_forked_and_nothing_is_left(told: Told) -> None:
    """Each checkpoint has one successor, each message is done, each question answered."""
    assert [f.exception() for f in told.threads.values()] == [None] * len(STORIES)
    assert [row for row in forks(told.fleet.database) if row[1] == ""] == []
    sql = "SELECT DISTINCT status FROM fleet.messages"
    assert told.fleet.database.fetch(sql) == [("done",)]
