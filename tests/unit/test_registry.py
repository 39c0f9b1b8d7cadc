"""The registry: what it loads, and what it says of what it can't."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from langgraph.store.memory import InMemoryStore

from graphs.opening import own_loop
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

import contextlib, operator, os, sys
from langgraph.channels.delta import DeltaChannel
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AnyMessage
from langchain_core.tools import tool
from langgraph.func import entrypoint
from langgraph.store.memory import InMemoryStore
from typing import Annotated, NotRequired
from langgraph.graph.message import add_messages

print("imported")
async def awaited(): return make()
async def yields():
    yield make()
@contextlib.asynccontextmanager
async def opened():
    yield make()
@contextlib.contextmanager
def opened_sync(config):
    yield make()
def wants(a, b): return make()
def leaves(): sys.exit("no key")
def variable(): raise RuntimeError(os.environ["OF_THE_GRAPHS_FILE"])
never = make().compile(checkpointer=False)
@entrypoint(checkpointer=InMemorySaver())
def workflow(x: dict): return x

async def path(state): return "one"
branching = make()
branching.add_conditional_edges("one", path, ["one"])
@tool
async def later(x: int) -> int:
    "Async only."
    return x
class Around(AgentMiddleware):
    async def awrap_model_call(self, request, handler): return await handler(request)
model = FakeListChatModel(responses=["hi"])
with_tool = create_agent(model, [later])
with_middleware = create_agent(model, [], middleware=[Around()])
empty = make().compile(store=InMemoryStore())
filled = make().compile(store=InMemoryStore())
filled.store.put(("a",), "b", {})

def gather(have, given): return have + ([given] if isinstance(given, str) else given)
def extend(have, writes): return [*have, *writes]
class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    n: int
    papers: Annotated[list[str], gather]
    log: Annotated[list[str], operator.add]
    lines: Annotated[list[str], DeltaChannel(extend)]
class Start(TypedDict):
    n: int
chat = StateGraph(Chat)
chat.add_node("one", one)
chat.add_edge(START, "one")
strict = StateGraph(Chat, input_schema=Start)
strict.add_node("one", one)
strict.add_edge(START, "one")
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


LOADABLE = ["graph", "builder", "make", "nested", "configured", "awaited", "never", "workflow"]
LOADABLE += ["opened", "opened_sync"]


@pytest.mark.parametrize("attribute", LOADABLE)
def test_compiled_graphs_builders_and_factories_load(folder: Path, attribute: str) -> None:
    """All of them without a checkpointer: a turn lends its own."""
    found = registry(folder, g=f"./mine.py:{attribute}").get("g")
    assert found.graph.checkpointer is None
    assert found.graph.nodes


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


def test_a_package_that_is_not_installed_imports_from_itself(folder: Path) -> None:
    """By relative imports, and by its name: LangGraph's templates keep it below src."""
    package = folder / "src" / "agent_of_a_template"
    (package / "parts").mkdir(parents=True)
    for where in (package, package / "parts"):
        (where / "__init__.py").touch()
    (package / "parts" / "whole.py").write_text(GRAPH)
    (package / "graph.py").write_text(
        "from .parts.whole import State, make\n"
        "from agent_of_a_template.parts import whole\n"
        "assert whole.State is State\n"
        "graph = make().compile()\n"
    )
    found = registry(folder, g="./src/agent_of_a_template/graph.py:graph").get("g")
    assert [*found.graph.nodes] == ["__start__", "one"]


def test_a_graph_in_another_language_is_told_as_such(folder: Path) -> None:
    """LangGraph's tools serve both from one file."""
    with pytest.raises(RegistryError, match="is no Python"):
        registry(folder, g="./src/agent.ts:graph").get("g")


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
        ("./mine.py:yields", "Decorate it with contextlib.asynccontextmanager"),
        ("./mine.py:wants", "wants a, b"),
        ("./mine.py:leaves", "SystemExit: no key (mine.py:"),
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
        ('{"graphs": {"a": {"path": "./x.py:g", "async": "yes"}}}', "can't be used"),
        ('{"graphs": {}, "env": "none.env"}', "none.env, which does not exist"),
        ('{"graphs": {}, "env": {"A": ["b"]}}', "env that can't be used"),
        ('{"graphs": {}, "env": {"FLEET_QUEUE": "q"}}', "FLEET_QUEUE"),
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


ASYNC = ["only_async", "nested", "branching", "with_tool", "with_middleware"]


@pytest.mark.parametrize("attribute", [*ASYNC, "graph", "make", "configured"])
def test_what_has_no_sync_version_is_found(folder: Path, attribute: str) -> None:
    """Nodes, paths of conditional edges, tools and middleware; the graphs file may say it."""
    found = registry(folder, g=f"./mine.py:{attribute}").get("g")
    assert found.is_async is (attribute in ASYNC)
    said = registry(folder, g={"path": f"./mine.py:{attribute}", "async": True}).get("g")
    assert said.is_async


@pytest.mark.parametrize("env", [{"OF_THE_GRAPHS_FILE": "here"}, "own.env"])
def test_env_reaches_the_graphs_modules(
    folder: Path, monkeypatch: pytest.MonkeyPatch, env: Any
) -> None:
    """As an object or as a file; the process's own environment wins."""
    (folder / "own.env").write_text("OF_THE_GRAPHS_FILE=here\n")
    file = folder / "langgraph.json"
    file.write_text(json.dumps({"graphs": {"g": "./mine.py:variable"}, "env": env}))
    for own, seen in ((None, "here"), ("there", "there")):
        monkeypatch.setenv("OF_THE_GRAPHS_FILE", own or "")
        if own is None:
            monkeypatch.delenv("OF_THE_GRAPHS_FILE")
        with pytest.raises(RegistryError, match=f"RuntimeError: {seen}"):
            Registry.load(file).get("g")


def test_folders_among_the_dependencies_can_be_imported_from(folder: Path) -> None:
    """As LangGraph's own tools have it."""
    (folder / "src").mkdir()
    (folder / "src" / "of_a_dependency.py").write_text("from mine import make")
    file = folder / "langgraph.json"
    graphs = {"g": "of_a_dependency:make"}
    file.write_text(json.dumps({"dependencies": [".", "./src", "x"], "graphs": graphs}))
    assert Registry.load(file).get("g").graph.nodes


def test_a_factory_is_asked_anew_only_where_it_has_to_be(folder: Path) -> None:
    """With the run's config per turn, an async one per slot, any other once."""
    made = registry(folder, **{n: f"./mine.py:{n}" for n in ("make", "configured", "awaited")})
    factories = {name: made.get(name).factory for name in made.names()}
    assert factories["make"] is None
    assert factories["configured"] is not None and factories["configured"].takes_config
    assert factories["awaited"] is not None and not factories["awaited"].takes_config
    with own_loop() as wait_for:
        again = made.get("configured").made_anew({"configurable": {}}, wait_for)
        assert again.graph is not made.get("configured").graph
        assert made.get("make").made_anew({}, wait_for) is made.get("make")


def test_an_in_memory_store_gives_way_unless_it_holds_something(folder: Path) -> None:
    """It would be another one in each process; what it was filled with would be missing."""
    made = registry(folder, **{n: f"./mine.py:{n}" for n in ("empty", "filled", "graph")})
    lent = InMemoryStore()
    assert made.get("empty").lent(lent).graph.store is lent
    assert made.get("graph").lent(lent).graph.store is lent
    assert made.get("filled").lent(lent).graph.store is not lent


def test_the_input_schema_takes_what_langgraph_takes(folder: Path) -> None:
    """Messages in short, and a part of the state; an input schema of its own is kept to."""
    made = registry(folder, chat="./mine.py:chat", strict="./mine.py:strict")
    chat, strict = (made.get(name).input_schema for name in ("chat", "strict"))
    assert chat is not None and strict is not None
    for messages in ([{"role": "user", "content": "hi"}], "hi", [["user", "hi"]]):
        assert Draft202012Validator(chat).is_valid({"messages": messages})
    assert not Draft202012Validator(chat).is_valid({"n": "one"})
    # A reducer of the graph's own takes what it takes; of others it is known.
    for given in ({"papers": "one"}, {"papers": ["one"]}, {"lines": "one"}, {"log": ["one"]}):
        assert Draft202012Validator(chat).is_valid(given)
    assert not Draft202012Validator(chat).is_valid({"log": "one"})
    assert not Draft202012Validator(strict).is_valid({})


def test_what_a_module_prints_is_nobodys_data(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands write JSON to stdout."""
    registry(folder, g="./mine.py:graph").get("g")
    assert capsys.readouterr() == ("", "imported\n")
