"""The store that is lent to graphs, with the `store` of langgraph.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from graphs.registry import Registry
from infra import vectors
from infra.errors import FleetError, MigrationsMissing, VectorsUnavailable
from infra.migrate import migrate
from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from producers.cli.state import thread_in_full
from producers.doctor.checkup import checkup
from producers.doctor.finding import Finding
from tests.harness import Database, eventually
from tests.worker_processes import Workers
from workers.drain import drain
from workers.expiry import Expiry
from workers.slot import Slot

GRAPHS = """
import os

from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    wanted: str
    found: list


async def embed(texts):
    assert os.environ["MODEL_KEY"] == "k"
    return [[float("tea" in text), float("car" in text), 0.1] for text in texts]


NOTES = {"a": "likes tea", "b": "drives a car"}


def sync(state, runtime: Runtime):
    for key, text in NOTES.items():
        runtime.store.put(("notes",), key, {"text": text})
    return {"found": [i.key for i in runtime.store.search(("notes",), query=state["wanted"])]}


async def awaiting(state, runtime: Runtime):
    for key, text in NOTES.items():
        await runtime.store.aput(("notes",), key, {"text": text})
    found = await runtime.store.asearch(("notes",), query=state["wanted"])
    return {"found": [item.key for item in found]}


def flow(node):
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder


now, later = flow(sync), flow(awaiting)
"""
INDEX = {"dims": 3, "embed": "./noted.py:embed", "fields": ["text"]}


def graphs_with(folder: Path, store: dict[str, Any]) -> Path:
    (folder / "noted.py").write_text(GRAPHS)
    file = folder / "langgraph.json"
    graphs = {name: f"./noted.py:{name}" for name in ("now", "later")}
    file.write_text(json.dumps({"graphs": graphs, "store": store, "env": {"MODEL_KEY": "k"}}))
    return file


@pytest.fixture
def served(
    settings_env: None, tmp_path: Path, database: Database, request: pytest.FixtureRequest
) -> Iterator[Slot]:
    """A slot, with the store that the test's parameter says."""
    registry = Registry.load(graphs_with(tmp_path, request.param))
    migrate(database.url, registry.described(), registry.store.dims)
    made = Slot(get_settings(), registry, "fleet")
    yield made
    made.close()


@pytest.mark.parametrize("served", [{"index": INDEX}], indirect=True)
@pytest.mark.parametrize("graph", ["now", "later"])
def test_the_store_searches_by_meaning(served: Slot, fleet: Fleet, graph: str) -> None:
    """As store.index says, in sync and async nodes, with the file's env: the best one first."""
    for wanted, best in (("tea", "a"), ("car", "b")):
        thread = fleet.submit(graph, wanted, {"wanted": wanted}).thread_id
        assert [turn["outcome"] for turn in drain(served, thread)] == ["done"]
        assert thread_in_full(thread)["state"]["found"][0] == best


@pytest.mark.parametrize("served", [{"ttl": {"default_ttl": 60}}], indirect=True)
def test_what_has_expired_is_removed(served: Slot, fleet: Fleet, database: Database) -> None:
    """By the time that store.ttl says, and no earlier."""
    drain(served, fleet.submit("now", "k", {"wanted": "tea"}).thread_id)
    assert database.fetch("SELECT key, ttl_minutes FROM store ORDER BY 1") == [("a", 60), ("b", 60)]
    expiry = Expiry(get_settings(), 1, lambda: False)
    assert expiry.run_once() == 0
    database.fetch("UPDATE store SET expires_at = now() - interval '1 second' WHERE key = 'a'")
    assert expiry.run_once() == 1
    assert database.fetch("SELECT key FROM store") == [("b",)]


def test_a_worker_removes_what_has_expired(
    settings_env: None, tmp_path: Path, database: Database, fleet: Fleet, workers: Workers
) -> None:
    """Every sweep_interval_minutes, by the leader of the sweep."""
    ttl = {"default_ttl": 0.001, "sweep_interval_minutes": 0.01}
    file = graphs_with(tmp_path, {"ttl": ttl})
    database.register(file)
    workers.start(concurrency=1, graphs_file=file)
    thread = fleet.submit("now", "k", {"wanted": "tea"}).thread_id
    assert fleet.wait(thread, 30).status == "done"
    assert len(thread_in_full(thread)["state"]["found"]) == 2
    assert eventually(lambda: database.value("SELECT count(*) FROM store") == 0)


def test_a_worker_does_not_start_where_its_store_cannot_be_searched(
    settings_env: None, tmp_path: Path, database: Database, workers: Workers
) -> None:
    """Before any turn fails of it; it says what to run."""
    file = graphs_with(tmp_path, {"index": INDEX})
    worker = workers.start(concurrency=1, graphs_file=file, wait=False)
    assert worker.child.wait(30) == 1
    assert "store.index, and the database no table" in worker.log()
    assert "Run `fleet migrate`" in worker.log()


def test_migrate_makes_the_tables_of_an_index(
    settings_env: None,
    tmp_path: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once; it may be run again, and nothing is imported for it but the graphs."""
    monkeypatch.setenv("FLEET_GRAPHS_FILE", str(graphs_with(tmp_path, {"index": INDEX})))
    get_settings.cache_clear()
    with database.connect() as conn:
        with pytest.raises(MigrationsMissing):
            vectors.require(conn, 3)
        assert [main(["migrate"]), main(["migrate"])] == [0, 0]
        vectors.require(conn, 3)
        with pytest.raises(VectorsUnavailable, match=r"dims 4, .* of 3"):
            vectors.require(conn, 4)


def store_findings(file: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[Finding]:
    """What `fleet doctor` finds about the store."""
    monkeypatch.setenv("FLEET_GRAPHS_FILE", str(file))
    get_settings.cache_clear()
    found = checkup(get_settings(), **options)
    return [finding for finding in found if finding.check.startswith("store ")]


def test_doctor_looks_at_the_store(
    settings_env: None, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No table, before a deploy or not; vectors of another length; all well. It makes nothing."""
    file = graphs_with(tmp_path, {"index": INDEX})
    lacking = store_findings(file, monkeypatch)[0]
    assert (lacking.level, lacking.fix) == ("problem", "Run `fleet migrate`.")
    assert store_findings(file, monkeypatch, before_deploy=True)[0].level == "warning"
    assert database.value("SELECT count(*) FROM pg_extension WHERE extname = 'vector'") == 0
    migrate(database.url, (), 4)
    other = store_findings(file, monkeypatch)[0]
    assert other.level == "problem" and "dims 3, and" in other.said and "of 4" in other.said
    graphs_with(tmp_path, {"index": INDEX | {"dims": 4}})
    assert [f.level for f in store_findings(file, monkeypatch)] == ["ok", "ok"]


def test_doctor_names_embeddings_that_are_not_there(
    settings_env: None, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker would not start."""
    migrate(database.url, (), 3)
    file = graphs_with(tmp_path, {"index": INDEX | {"embed": "./noted.py:nobody"}})
    vectors_found, embed = store_findings(file, monkeypatch)
    assert (vectors_found.level, embed.level) == ("ok", "problem")
    assert "./noted.py has no attribute 'nobody'" in embed.said


def test_doctor_says_nothing_of_a_store_without_an_index(
    settings_env: None, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing that could be wrong."""
    assert store_findings(graphs_with(tmp_path, {}), monkeypatch) == []


def test_vectors_too_long_for_an_index_have_their_table(database: Database) -> None:
    """pgvector would refuse the index, with the tables half made."""
    migrate(database.url, (), 3072)
    assert database.value("SELECT to_regclass('store_vectors_embedding_idx')") is None
    with database.connect() as conn:
        vectors.require(conn, 3072)


def test_nothing_is_made_where_the_extension_may_not_be(empty_database: Database) -> None:
    """The user is told what a superuser has to do; not even the fleet's own tables are made."""
    name = empty_database.url.rpartition("/")[2]
    empty_database.fetch(f"CREATE ROLE {name}_owner LOGIN PASSWORD 'x'")
    empty_database.fetch(f"GRANT ALL ON DATABASE {name} TO {name}_owner")
    empty_database.fetch(f"GRANT ALL ON SCHEMA public TO {name}_owner")
    conninfo = psycopg.conninfo.make_conninfo(
        empty_database.url, user=f"{name}_owner", password="x"
    )
    with pytest.raises(FleetError, match="CREATE EXTENSION vector"):
        migrate(conninfo, (), 3)
    assert empty_database.value("SELECT to_regnamespace('fleet') IS NULL") is True


def test_a_server_without_the_extension_is_named(database: Database) -> None:
    """With where to get it."""
    with database.connect() as conn:
        conn.execute("CREATE SCHEMA elsewhere")
        conn.execute("CREATE VIEW elsewhere.pg_available_extensions AS SELECT ''::name AS name")
        conn.execute("SET search_path = elsewhere, pg_catalog, public")
        with pytest.raises(VectorsUnavailable, match="pgvector, which this server does not have"):
            vectors.prepare(conn, 3)
        with pytest.raises(VectorsUnavailable, match="pgvector"):
            vectors.require(conn, 3)
