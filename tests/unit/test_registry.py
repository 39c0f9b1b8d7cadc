"""The registry: what it loads, and what it says of what it can't."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from graphs.registry import Registry
from infra.errors import RegistryError

GRAPH = """
from typing_extensions import TypedDict
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph, START

class State(TypedDict):
    n: int

def one(state): return {}
async def two(state): return {}

def make(node=one):
    builder = StateGraph(State)
    builder.add_node("one", node)
    builder.add_edge(START, "one")
    return builder

builder = make()
graph = make().compile(checkpointer=InMemorySaver())
stops = make().compile(interrupt_before=["one"])
only_async = make(two).compile()
def nested():
    outer = StateGraph(State)
    outer.add_node("sub", only_async)
    outer.add_edge(START, "sub")
    return outer
def configured(config): return make()
number = 7
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "mine.py").write_text(GRAPH)
    (tmp_path / "bug.py").write_text("import nothing_of_this_name")
    return tmp_path


def registry(folder: Path, **graphs: Any) -> Registry:
    file = folder / "langgraph.json"
    file.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    return Registry.load(file)


@pytest.mark.parametrize("attribute", ["graph", "builder", "make", "nested", "configured"])
def test_compiled_graphs_builders_and_factories_load(folder: Path, attribute: str) -> None:
    """All of them without a checkpointer: a turn lends its own."""
    found = registry(folder, g=f"./mine.py:{attribute}").get("g")
    assert found.graph.checkpointer is None
    assert "__start__" in found.graph.nodes


def test_object_entries_and_dotted_modules_load(folder: Path) -> None:
    """As langgraph.json allows; a queue of its own is ours."""
    made = registry(
        folder,
        a={"path": "./mine.py:graph", "description": "mine", "queue": "slow"},
        b="graphs.refund:graph",
    )
    assert {d["graph"]: d["queue"] for d in made.described()} == {"a": "slow", "b": "fleet"}


def test_a_file_of_an_importable_package_keeps_its_module_name(folder: Path) -> None:
    """A class must not exist twice."""
    import graphs.refund

    path = Path(graphs.refund.__file__)
    assert registry(folder, r=f"{path}:graph").get("r").graph is graphs.refund.graph


def test_async_only_nodes_and_breakpoints_are_seen(folder: Path) -> None:
    """In subgraphs too."""
    made = registry(
        folder,
        **{n: f"./mine.py:{n}" for n in ("graph", "stops", "only_async", "nested")},
    )
    assert [made.get(n).is_async for n in ("graph", "only_async", "nested")] == [False, True, True]
    assert [made.get(n).has_breakpoints for n in ("graph", "stops")] == [False, True]


def test_the_input_schema_is_json_schema(folder: Path) -> None:
    """Doors check with it."""
    schema = registry(folder, r="graphs.refund:graph").get("r").input_schema
    assert schema is not None
    check = Draft202012Validator(schema)
    assert check.is_valid({"user_id": "u_42"})
    assert not check.is_valid({})
    assert not check.is_valid({"user_id": 42})


def test_the_fingerprint_names_nodes_and_where_the_thread_stands(folder: Path) -> None:
    """Sorted, so that it compares."""
    found = registry(folder, g="./mine.py:graph").get("g")
    assert found.fingerprint == {"nodes": ["__start__", "one"]}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("./bug.py:graph", "nothing_of_this_name"),
        ("./none.py:graph", "does not exist"),
        ("nothing_here.graph:graph", "nothing_here"),
        ("./mine.py:grahp", "Did you mean 'graph'?"),
        ("./mine.py:number", "int, which is no graph"),
        ("./mine.py", "names no attribute"),
    ],
)
def test_a_broken_graph_stops_nobody_but_itself(folder: Path, path: str, said: str) -> None:
    """One sentence with what to do; the others load."""
    made = registry(folder, bad=path, good="./mine.py:graph")
    for _ in range(2):
        with pytest.raises(RegistryError) as caught:
            made.get("bad")
        assert said in str(caught.value)
        assert "'bad'" in str(caught.value)
    assert made.names() == ["bad", "good"]
    assert [d["graph"] for d in made.described()] == ["good"]


def test_an_unknown_graph_says_which_was_meant(folder: Path) -> None:
    """Or which there are."""
    made = registry(folder, refund="./mine.py:graph")
    with pytest.raises(RegistryError, match="Did you mean 'refund'"):
        made.get("refnud")
    with pytest.raises(RegistryError, match="Known: refund"):
        made.get("x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "can't be read"),
        ("[]", "no object named graphs"),
        ('{"graphs": {"a:b": "./x.py:g"}}', "'a:b'"),
        ('{"graphs": {"a": 7}}', "can't be used"),
        ('{"graphs": {"a": {"queue": "q"}}}', "can't be used"),
    ],
)
def test_a_graphs_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, said: str) -> None:
    """At load, before anything runs."""
    file = tmp_path / "langgraph.json"
    file.write_text(text)
    with pytest.raises(RegistryError, match=said):
        Registry.load(file)


def test_a_missing_graphs_file_says_what_to_set(tmp_path: Path) -> None:
    """The path that was looked at, and the setting."""
    with pytest.raises(RegistryError, match="FLEET_GRAPHS_FILE"):
        Registry.load(tmp_path / "none.json")
