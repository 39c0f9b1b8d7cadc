"""Threads and mail of another release than the worker's. Turns run in this process."""

import logging
import re
from pathlib import Path

import pytest

from graphs.registry import Registry
from producers import Fleet
from producers.cli.leftbehind import incompatible_threads
from tests.harness import ROOT, Database, write_graphs
from tests.integration.mailbox import begun
from workers.drain import drain
from workers.slot import Slot

CORRECTED = ROOT / "tests/graphs/corrected.py"
PARALLEL = ROOT / "tests/graphs/parallel.py"


@pytest.fixture
def graphs_file(database: Database, tmp_path: Path) -> Path:
    found = write_graphs(
        tmp_path,
        parallel=f"{PARALLEL}:graph",
        **{n: f"{CORRECTED}:{n}" for n in ("sequence", "many", "asks", "nested")},
    )
    database.register(found)
    return found


@pytest.mark.parametrize("graph", ["sequence", "many"])
def test_a_node_that_is_gone_is_missed_in_a_thread_that_never_ended_a_turn(
    slot: Slot, fleet: Fleet, graph: str
) -> None:
    """The thread is incompatible, never done, and nothing of its mail is consumed."""
    thread = begun(fleet, slot, graph, broken=["checked"])
    nodes = slot.graph(graph, {}).graph.nodes
    gone = nodes.pop("checked")
    fleet.retry(thread)
    drain(slot, thread)
    found = fleet.status(thread)
    assert (found.status, found.messages[0].status) == ("incompatible", "pending")
    assert "checked" in (found.last_error or "")
    nodes["checked"] = gone
    fleet.retry(thread)
    drain(slot, thread)
    assert fleet.status(thread).status == "failed"


def test_a_node_that_a_subgraph_has_lost_is_missed_too(slot: Slot, fleet: Fleet) -> None:
    """LangGraph would take the subgraph for finished."""
    thread = begun(fleet, slot, "nested")
    (inner,) = [g for _, g in slot.graph("nested", {}).graph.get_subgraphs()]
    gone = inner.nodes.pop("asked")  # type: ignore[attr-defined]
    fleet.answer(thread, None, "yes")
    drain(slot, thread)
    found = fleet.status(thread)
    assert found.status == "incompatible" and "inner|asked" in (found.last_error or "")
    inner.nodes["asked"] = gone  # type: ignore[attr-defined]
    fleet.retry(thread)
    drain(slot, thread)
    assert fleet.status(thread).status == "done"


def test_threads_that_a_deploy_would_leave_behind_are_listed(
    slot: Slot, fleet: Fleet, graphs_file: Path, tmp_path: Path
) -> None:
    """Those that stand at a node which the checkout's graph has not, or without a graph."""
    begun(fleet, slot, "sequence", "ended")
    failed = begun(fleet, slot, "sequence", "failed", broken=["checked"])
    many = begun(fleet, slot, "many", broken=["checked"])
    asks = begun(fleet, slot, "asks")
    nested = begun(fleet, slot, "nested")
    begun(fleet, slot, "parallel", names=["d1"], told=[])
    assert incompatible_threads(fleet, Registry.load(graphs_file)) == []
    # As a checkout that renamed a node, and one that has lost a graph.
    source = re.sub(r"\bchecked\b", "examined", CORRECTED.read_text())
    (tmp_path / "renamed.py").write_text(re.sub(r"\basked\b", "wanted", source))
    changed = write_graphs(
        tmp_path, **{n: "./renamed.py:" + n for n in ("sequence", "many", "nested")}
    )
    found = {t["thread_id"]: t for t in incompatible_threads(fleet, Registry.load(changed))}
    assert found.keys() == {failed, many, asks, nested}
    assert found[nested]["missing"] == ["inner|asked"]
    assert found[failed]["missing"] == found[many]["missing"] == ["checked"]
    assert found[asks]["missing"] == [] and "asks" in found[asks]["reason"]


def test_mail_of_a_newer_release_is_left_to_newer_workers(
    slot: Slot, fleet: Fleet, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays as it is, with a clear word, and later a worker that knows it takes it."""
    thread = fleet.submit("sequence", "A", {"names": [], "steps": []}).thread_id
    database.fetch("UPDATE fleet.messages SET kind = 'start@2'")
    with caplog.at_level(logging.WARNING):
        drain(slot, thread)
    found = fleet.status(thread)
    assert (found.status, found.messages[0].status) == ("idle", "pending")
    assert (found.messages[0].crashes, found.messages[0].failures) == (0, 0)
    assert "'start@2' is newer than this worker" in caplog.text
    database.fetch("UPDATE fleet.messages SET kind = 'start', available_at = fleet.now()")
    drain(slot, thread)
    assert fleet.status(thread).status == "done"
