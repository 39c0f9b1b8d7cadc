"""Graphs made by context managers: what they open is open while they run, and left in order."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphs.registry import Registry
from infra.errors import RegistryError
from infra.settings import get_settings
from producers import Fleet
from producers.cli.state import thread_in_full
from tests.harness import ROOT, Database, write_graphs
from tests.worker_processes import Workers
from workers.drain import drain
from workers.slot import Slot

NAMES = ("connected", "of_turn", "never_left", "never_opened")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "told"
    path.touch()
    monkeypatch.setenv("OPENED", str(path))
    return path


@pytest.fixture
def graphs_file(told: Path, tmp_path: Path, settings_env: None, database: Database) -> Path:
    made = write_graphs(tmp_path, **{n: f"{ROOT}/tests/graphs/opening.py:{n}" for n in NAMES})
    database.register(made)
    told.write_text("")
    return made


@pytest.fixture
def slot(graphs_file: Path, told: Path) -> Iterator[Slot]:
    """What was opened to look at the graphs is closed again, and not told of any more."""
    made = Slot(get_settings(), Registry.load(graphs_file), "fleet")
    for name in NAMES[:2]:
        made.registry.get(name)
    told.write_text("")
    yield made
    made.close()


def run(slot: Slot, fleet: Fleet, graph: str, key: str) -> object:
    thread = fleet.submit(graph, key, {}).thread_id
    assert [turn["outcome"] for turn in drain(slot, thread)] == ["done"]
    return thread_in_full(thread)["state"]["open"]


def test_an_async_context_is_open_from_the_first_turn_to_the_slots_end(
    slot: Slot, fleet: Fleet, told: Path
) -> None:
    """Entered once, on the loop on which the nodes run, and left by the task that entered."""
    assert [run(slot, fleet, "connected", key) for key in "ab"] == [True, True]
    assert told.read_text().split() == ["opened"]
    slot.close()
    assert told.read_text().split() == ["opened", "closed"]


def test_one_that_takes_the_config_is_open_for_a_turn(slot: Slot, fleet: Fleet, told: Path) -> None:
    """As long as its graph."""
    assert [run(slot, fleet, "of_turn", key) for key in "ab"] == [True, True]
    assert told.read_text().splitlines() == ["opened a", "closed a", "opened b", "closed b"]


def test_what_is_opened_to_look_at_a_graph_is_closed(graphs_file: Path, told: Path) -> None:
    """The registry keeps the graph's shape, no connection."""
    registry = Registry.load(graphs_file)
    assert [*registry.get("connected").graph.nodes] == ["__start__", "node"]
    assert told.read_text().split() == ["opened", "closed"]
    with pytest.raises(RegistryError, match="RuntimeError: nobody there"):
        registry.get("never_opened")


def test_a_context_that_cannot_be_left_harms_nobody(slot: Slot, fleet: Fleet, told: Path) -> None:
    """Its graph is refused when it is looked at; the others run."""
    with pytest.raises(RegistryError, match="can't be closed"):
        slot.registry.get("never_left")
    assert run(slot, fleet, "connected", "a") is True


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_that_ends_leaves_what_its_graphs_opened(
    pool: str, graphs_file: Path, told: Path, fleet: Fleet, workers: Workers
) -> None:
    """One slot, one context; each look at the graph is closed as well."""
    worker = workers.start(pool=pool, concurrency=1, graphs_file=graphs_file)
    opened = told.read_text().split().count("opened")
    assert fleet.wait(fleet.submit("connected", "a", {}).thread_id, 20).status == "done"
    worker.terminate()
    events = told.read_text().split()
    assert events.count("opened") > opened
    assert events.count("opened") == events.count("closed")
    assert "Traceback" not in worker.log()
