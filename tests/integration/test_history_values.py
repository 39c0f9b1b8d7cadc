"""What `fleet history` and `fleet show` make of what graphs keep in special ways."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from tests.harness import ROOT, Database, write_graphs
from tests.integration.test_cli import Done
from workers.drain import drain
from workers.slot import Slot

CHAT = ROOT / "tests/graphs/chat.py"
FUNCTIONAL = """
from langgraph.func import entrypoint, task

@task
def double(n):
    return 2 * n

@entrypoint()
def adds(given: dict, *, previous: int | None = None):
    return (previous or 0) + double(given["n"]).result()

@entrypoint()
def keeps(given: dict, *, previous: int | None = None) -> entrypoint.final[int, int]:
    return entrypoint.final(value=given["n"], save=(previous or 0) + 1)
"""
Cli = Callable[..., Done]


@pytest.fixture
def graphs_file(database: Database, tmp_path: Path) -> Path:
    (tmp_path / "functional.py").write_text(FUNCTIONAL)
    chats = {n: f"{CHAT}:{n}" for n in ("chat", "delta", "nested", "remembering")}
    found = write_graphs(
        tmp_path, adds="./functional.py:adds", keeps="./functional.py:keeps", **chats
    )
    database.register(found)
    return found


@pytest.fixture
def cli(
    slot: Slot, graphs_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> Callable[..., Done]:
    """Runs a command in this process, with the test's settings and graphs."""

    def run(*args: str) -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
        monkeypatch.setenv("FLEET_GRAPHS_FILE", str(graphs_file))
        get_settings.cache_clear()
        capfd.readouterr()
        code = main(args)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def talk(slot: Slot, fleet: Fleet, graph: str, *said: str) -> str:
    """A chat with one turn for each thing said."""
    thread = fleet.submit(graph, "k", {"said": [said[0]]}).thread_id
    drain(slot, thread)
    for text in said[1:]:
        fleet.send(thread, {"said": [text]})
        drain(slot, thread)
    return thread


def stock(slot: Slot, database: Database, graph: str, thread: str) -> dict[str, Any]:
    """LangGraph's own word on each checkpoint, by id."""
    with database.connect(row_factory=dict_row) as conn:
        found = slot.registry.get(graph).graph.copy({"checkpointer": PostgresSaver(conn)})
        past = found.get_state_history({"configurable": {"thread_id": thread}})
        return {s.config["configurable"]["checkpoint_id"]: s.values for s in past}


def test_what_is_kept_as_differences_is_shown_whole(
    slot: Slot, fleet: Fleet, database: Database, cli: Cli
) -> None:
    """A DeltaChannel's value at each checkpoint, as LangGraph has it."""
    thread = talk(slot, fleet, "delta", "one", "two", "three", "four")
    expected = stock(slot, database, "delta", thread)
    steps = cli("history", thread, "--json").json()["checkpoints"]
    assert len(steps) == len(expected) > 8
    said: list[str] = []
    for step in steps:
        at = cli("history", thread, "--at", step["checkpoint_id"], "--json").json()
        said = step["changed"].get("said", said)
        assert at["state"] == expected[step["checkpoint_id"]] | ({"said": said} if said else {})
    assert cli("show", thread, "--json").json()["state"]["said"] == said != []


@pytest.mark.parametrize("graph", ["chat", "delta"])
def test_of_a_list_that_only_grew_the_end_is_shown(
    graph: str, slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """With how many came to it, however long it was; as JSON beside the whole."""
    long = "what was said long ago " * 20
    thread = talk(slot, fleet, graph, long, "and then?")
    last = cli("history", thread, "--json").json()["checkpoints"][-1]
    assert last["changed"]["said"][0] == long and len(last["changed"]["said"]) == 4
    assert last["appended"] == {"said": ["answer to and then?"]}
    lines = cli("history", thread).out.splitlines()
    assert '"said + 1": ["answer to and then?"]' in lines[-1]
    assert not any("said + " in line for line in lines[:3])


def test_what_is_kept_as_differences_needs_the_graph(
    slot: Slot, fleet: Fleet, cli: Cli, graphs_file: Path
) -> None:
    """Where it can't be loaded the names are told, with why, instead of a wrong value."""
    thread = talk(slot, fleet, "delta", "one")
    graphs_file.write_text(json.dumps({"graphs": {"delta": "./gone.py:graph"}}))
    done = cli("history", thread)
    assert done.code == 0 and '"said": "(not known)"' in done.out
    assert "said" in done.err and "gone.py" in done.err
    last = json.loads(cli("history", thread, "--json").out)["checkpoints"][-1]
    at = json.loads(cli("history", thread, "--at", last["checkpoint_id"], "--json").out)
    assert (at["state"], at["unknown"]) == ({}, ["said"])
    assert cli("show", thread, "--json").json()["unknown"] == ["said"]


@pytest.mark.parametrize("graph", ["nested", "remembering"])
def test_steps_of_subgraphs_are_part_of_history(
    graph: str, slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """In order of time, under the node that runs them; each with its state."""
    thread = talk(slot, fleet, graph, "one")
    steps = cli("history", thread, "--json").json()["checkpoints"]
    inner = [s for s in steps if s["subgraph"]]
    node = inner[-1]["subgraph"]
    assert inner[-1]["nodes"] == ["note"] and inner[-1]["changed"]["notes"] == ["noted"]
    assert node in [n for s in steps if not s["subgraph"] for n in s["nodes"]]
    assert [s["at"] for s in steps] == sorted(s["at"] for s in steps)
    at = cli("history", thread, "--at", inner[-1]["checkpoint_id"], "--json").json()
    assert (at["subgraph"], at["state"]["count"]) == (node, 1)
    lines = cli("history", thread).out.splitlines()
    assert lines[0].split("\t")[2] == "subgraph"
    assert any(line.split("\t")[2:4] == [node, "note"] for line in lines)
    refused = cli("fork", thread, "--at", inner[-1]["checkpoint_id"], "--key", "B", "--yes")
    assert refused.code == 1 and f"subgraph {node}" in refused.line()


def test_what_an_entrypoint_returns_is_its_result(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """In show, in the steps, and where the thread is waited for."""
    thread = fleet.submit("adds", "k", {"n": 4}).thread_id
    drain(slot, thread)
    assert cli("show", thread, "--json").json()["result"] == 8
    assert "result: 8" in cli("show", thread).out.splitlines()
    last = cli("history", thread, "--json").json()["checkpoints"][-1]
    assert last["result"] == 8
    assert '{"result": 8}' in cli("history", thread).out
    waited = cli("submit", "adds", "k", "--input", '{"n": 4}', "--wait", "5", "--json")
    assert json.loads(waited.out)["thread"]["result"] == 8


def test_what_an_entrypoint_saves_is_told_where_it_is_something_else(
    slot: Slot, fleet: Fleet, cli: Cli
) -> None:
    """`entrypoint.final`."""
    thread = fleet.submit("keeps", "k", {"n": 7}).thread_id
    drain(slot, thread)
    found = cli("show", thread, "--json").json()
    assert (found["result"], found["saved"], found["state"]) == (7, 1, {})


def test_each_generation_has_a_history(slot: Slot, fleet: Fleet, cli: Cli) -> None:
    """By number, or as LangGraph's thread_id names it; one that there is not is told."""
    thread = talk(slot, fleet, "nested", "one")
    first = cli("history", thread, "--json").json()["checkpoints"]
    fleet.restart(thread, {"said": ["anew"]})
    drain(slot, thread)
    second = cli("history", thread, "--json").json()["checkpoints"]
    assert first != second and len(second) >= len(first)
    for name, steps in ((f"{thread}#1", first), (f"{thread}#2", second)):
        assert cli("history", name, "--json").json()["checkpoints"] == steps
    at = first[-1]["checkpoint_id"]
    assert cli("history", f"{thread}#1", "--at", at, "--json").json()["checkpoint_id"] == at
    assert f"{thread} has no generation 3: its newest is 2." in cli("history", f"{thread}#3").line()
    assert cli("history", thread, "--generation", "3").code == 1
    assert cli("history", f"{thread}#1", "--generation", "2").code == 2
