"""A worker of several queues: from which one it takes, and to which one it gives back."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from graphs.registry import Registry
from infra.settings import get_settings
from producers import Fleet
from tests.harness import ROOT, Broker, Database
from workers import shutdown
from workers.drain import drain
from workers.slot import Slot

HARMLESS = {"user_id": "harmless"}


@pytest.fixture
def graphs_file(tmp_path: Path, settings_env: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three graphs, each with a queue of its own."""
    graph = f"{ROOT}/tests/graphs/deadly.py:graph"
    graphs = {name: {"path": graph, "queue": name} for name in ("fleet", "slow", "slower")}
    path = tmp_path / "graphs.json"
    path.write_text(json.dumps({"graphs": graphs}))
    monkeypatch.setenv("FLEET_GRAPHS_FILE", str(path))
    get_settings.cache_clear()
    return path


@pytest.fixture
def slot_of(graphs_file: Path, database: Database) -> Iterator[Callable[..., Slot]]:
    """Makes the slot of a worker with these queues."""
    database.register(graphs_file)
    made: list[Slot] = []

    def make(*queues: str) -> Slot:
        made.append(
            Slot(get_settings(), Registry.load(graphs_file), queues[0], "w@test", queues[1:])
        )
        return made[-1]

    yield make
    for slot in made:
        slot.disconnect()


@pytest.fixture
def submit(fleet: Fleet, broker: Broker) -> Callable[..., list[str]]:
    """Mail for so many new threads of each graph named, whose wake-ups are lost."""
    keys = itertools.count()

    def submit(*graphs: str) -> list[str]:
        found = [fleet.submit(graph, f"K{next(keys)}", HARMLESS).thread_id for graph in graphs]
        broker.client.flushdb()
        return found

    return submit


def served(done: list[dict[str, Any]]) -> list[str]:
    """The graphs whose threads were served, in order."""
    return [turn["thread_id"].partition(":")[0] for turn in done]


def test_a_slot_takes_from_the_queues_of_its_worker_only(
    slot_of: Callable[..., Slot], submit: Callable[..., list[str]], database: Database
) -> None:
    """Not from the default queue where the worker was told of another."""
    slow, _ = submit("slow", "fleet")
    assert served(drain(slot_of("slow"), slow)) == ["slow"]
    left = "SELECT queue FROM fleet.messages WHERE status = 'pending'"
    assert database.fetch(left) == [("fleet",)]


def test_the_wake_up_s_queue_is_drained_first_and_then_the_others(
    slot_of: Callable[..., Slot], submit: Callable[..., list[str]]
) -> None:
    """Mail whose own wake-ups are lost is found in each of them."""
    slower, *_ = submit("slower", "fleet", "slow", "slower", "fleet")
    slot = slot_of("fleet", "slow", "slower")
    slot.begin_with("slower")
    assert served(drain(slot, slower)) == ["slower", "slower", "slow", "fleet", "fleet"]


def test_the_other_queues_take_turns(
    slot_of: Callable[..., Slot], submit: Callable[..., list[str]]
) -> None:
    """The one that was looked at longest ago comes first."""
    slot = slot_of("fleet", "slow", "slower")
    found = []
    for _ in range(2):
        submit("slow", "slower")
        slot.begin_with("fleet")
        claimed = slot.claim_next()
        found.append(claimed.graph)
        slot.disconnect()
    assert found == ["slow", "slower"]


def test_what_is_left_is_told_to_the_queue_that_it_is_in(
    slot_of: Callable[..., Slot],
    submit: Callable[..., list[str]],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task that stops with mail left wakes a worker of that mail's queue."""
    monkeypatch.setattr("workers.drain._AT_LEAST", 0.0)
    monkeypatch.setenv("FLEET_TURNS_PER_TASK", "1")
    get_settings.cache_clear()
    fleet, _ = submit("fleet", "slow")
    assert served(drain(slot_of("fleet", "slow"), fleet)) == ["fleet"]
    assert [broker.client.llen(queue) for queue in ("fleet", "slow")] == [0, 1]


def test_a_task_of_long_turns_ends_before_it_has_done_twenty(
    slot_of: Callable[..., Slot],
    submit: Callable[..., list[str]],
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits on the broker does not wait for all of them; the rest is handed over."""
    monkeypatch.setattr("workers.drain._AT_MOST", 0.0)
    fleet, _ = submit("fleet", "slow")
    assert served(drain(slot_of("fleet", "slow"), fleet)) == ["fleet"]
    assert [broker.client.llen(queue) for queue in ("fleet", "slow")] == [0, 1]


def test_a_queue_that_was_added_at_runtime_is_looked_at_for_its_wake_up(
    slot_of: Callable[..., Slot],
) -> None:
    """And forgotten with the next one from elsewhere."""
    slot = slot_of("fleet", "slow")
    for queue, queues in (
        ("added", ["added", "slow", "fleet"]),
        ("other", ["other", "slow", "fleet"]),
        ("slow", ["slow", "fleet"]),
        ("fleet", ["fleet", "slow"]),
    ):
        slot.begin_with(queue)
        assert [*slot.queues] == queues


@pytest.mark.parametrize(
    ("exchange", "key", "queue"),
    [
        ("", "slow", "slow"),
        ("", "added", "added"),
        ("theirs", "slow", "slow"),
        ("theirs", "x", "fleet"),
    ],
)
def test_a_wake_up_is_handed_back_to_the_queue_that_it_came_from(
    exchange: str,
    key: str,
    queue: str,
    graphs_file: Path,
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its routing key, but for an exchange that names its keys otherwise."""
    from workers import tasks

    monkeypatch.setattr(tasks, "_queues", ("fleet", "slow"))
    monkeypatch.setattr(tasks, "_slots", threading.local())
    tasks.turns.push_request(delivery_info={"exchange": exchange, "routing_key": key})
    shutdown.hold(True)
    try:
        assert tasks.turns.run("slow:A") == []
    finally:
        shutdown.hold(False)
        tasks.turns.pop_request()
    assert [broker.client.llen(q) for q in ("fleet", "slow", "added")] == [
        int(q == queue) for q in ("fleet", "slow", "added")
    ]


def test_a_step_of_the_start_that_fails_ends_the_worker(
    settings_env: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one sentence: Celery's signals would swallow it and go on without a sweeper."""
    from workers import tasks

    def sweeper(*_: Any, **__: Any) -> None:
        raise ValueError("no sweeper today")

    monkeypatch.setattr(tasks, "Sweeper", sweeper)
    with pytest.raises(SystemExit, match=r"^error: the worker could not start: .*no sweeper today"):
        tasks.signals.worker_ready.send(sender=MagicMock())
