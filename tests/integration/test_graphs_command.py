"""`fleet graphs`, and a worker whose graphs file has a broken graph beside good ones."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphs.registry import Registry
from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from tests.harness import Broker, Database, eventually, write_graphs
from tests.worker_processes import Workers

GOOD = """
from langgraph.graph import START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy
from typing_extensions import TypedDict
from graphs.effects import effect

print("imported")

class State(TypedDict, total=False):
    said: str

@effect("mail.send", on_doubt="park")
def send(text: str, *, request_id: str) -> str:
    return text

def helper(text):
    return send(text=text)

def mail(state: State) -> State:
    return {"said": helper("hello")}

builder = StateGraph(State)
builder.add_node("mail", mail, cache_policy=CachePolicy())
builder.add_edge(START, "mail")
store = InMemoryStore()
store.put(("a",), "b", {"c": 1})
graph = builder.compile(store=store)
"""


@pytest.fixture
def graphs_file(tmp_path: Path) -> Path:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "broken.py").write_text("\n\nimport nothing_of_this_name\n")
    return write_graphs(tmp_path, good="./good.py:graph", broken="./broken.py:graph")


@pytest.fixture
def listed(graphs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def test_graphs_are_listed_with_nodes_effects_and_problems(
    listed: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """For machines: effects by node, through helpers too; what a module prints is no data."""
    assert main(["graphs", "--json"]) == 0
    printed = capsys.readouterr()
    assert "imported" in printed.err
    broken, good = json.loads(printed.out)["graphs"]
    assert (good["graph"], good["queue"], good["error"]) == ("good", "fleet", None)
    assert good["nodes"] == [{"name": "mail", "effects": ["mail.send"]}]
    assert good["effects"] == [{"name": "mail.send", "on_doubt": "park"}]
    assert ["InMemoryStore" in p or "no cache" in p for p in good["problems"]] == [True, True]
    assert "nothing_of_this_name" in broken["error"]["message"]
    assert "(broken.py:3)" in broken["error"]["message"]


def test_keys_of_the_file_that_are_not_read_are_noted(
    listed: None, graphs_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For machines and for people; the file works as before."""
    document = json.loads(graphs_file.read_text())
    graphs_file.write_text(json.dumps(document | {"http": {}, "checkpointer": {"ttl": {}}}))
    assert main(["graphs", "--json"]) == 0
    (note,) = json.loads(capsys.readouterr().out)["notes"]
    assert note.endswith("without effect here: http, checkpointer")
    assert main(["graphs"]) == 0
    assert f"langgraph.json: {note}" in capsys.readouterr().out


def test_graphs_are_listed_for_people(listed: None, capsys: pytest.CaptureFixture[str]) -> None:
    """A row each; the broken one's says why, its name once, and is no failure of the command."""
    assert main(["graphs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("\t")[0] == "graph"
    assert lines[2].startswith("good\tfleet\tmail\tmail.send (park)\t2")
    assert any(line.startswith("broken: can't be loaded from") for line in lines)


def test_a_missing_graphs_file_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And exit code 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEET_GRAPHS_FILE", "none.json")
    get_settings.cache_clear()
    assert main(["graphs"]) == 1
    get_settings.cache_clear()
    assert "does not exist" in capsys.readouterr().err


def test_a_broken_graph_is_refused_alone(
    graphs_file: Path, database: Database, broker: Broker, fleet: Fleet, workers: Workers
) -> None:
    """Its threads are incompatible, with the import error; the others are served."""
    database.register(graphs_file)
    database.fetch("INSERT INTO fleet.graphs (graph, registered_at) VALUES ('broken', fleet.now())")
    workers.start(concurrency=1, graphs_file=graphs_file)
    broken = fleet.submit("broken", "k", {}).thread_id
    good = fleet.submit("good", "k", {}).thread_id
    assert fleet.wait(good, 20).status == "done"
    status = eventually(lambda: (s := fleet.status(broken)).status == "incompatible" and s, 20)
    assert "nothing_of_this_name" in str(status.last_error)


def test_a_graph_that_failed_to_load_is_told_as_such_at_the_door(
    listed: None,
    settings_env: None,
    database: Database,
    broker: Broker,
    graphs_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`fleet submit` says why it is not registered, and what shows more; one that only waits
    for `fleet migrate` is told so."""
    monkeypatch.setenv("FLEET_GRAPHS_FILE", str(graphs_file))
    get_settings.cache_clear()
    assert main(["submit", "broken", "k", "--input", "{}"]) == 2
    said = capsys.readouterr().err
    assert "No graph 'broken' is registered, since it failed to load" in said
    assert "nothing_of_this_name" in said and "fleet graphs" in said
    assert main(["submit", "good", "k", "--input", "{}"]) == 2
    assert "fleet migrate" in capsys.readouterr().err.splitlines()[-1]
    assert main(["submit", "other", "k", "--input", "{}"]) == 2
    assert "failed to load" not in capsys.readouterr().err


def test_what_has_no_schema_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the address of pydantic's pages."""
    (tmp_path / "odd.py").write_text(
        "from typing import Callable, TypedDict\n"
        "from langgraph.graph import START, StateGraph\n"
        "class State(TypedDict):\n    call: Callable[[], int]\n"
        "graph = StateGraph(State)\n"
        "graph.add_node('n', lambda s: s)\ngraph.add_edge(START, 'n')\n"
    )
    found = Registry.load(write_graphs(tmp_path, odd="./odd.py:graph")).get("odd")
    assert found.input_schema is None
    assert "no JSON Schema" in caplog.text and "http" not in caplog.text
