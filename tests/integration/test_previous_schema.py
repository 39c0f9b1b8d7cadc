"""A rolling deploy as the database sees it: the release before, for real, and this one."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from graphs.registry import Registry
from infra import migrate as migrations
from infra.errors import MigrationsMissing
from infra.settings import get_settings
from producers import Fleet
from producers.errors import NothingToDo
from tests.harness import ROOT, Broker, Database, Shop
from tests.integration.mailbox import ask
from tests.previous_schema import (
    NEWEST,
    migrate_to_previous,
    since,
    statements,
    without_parameters,
)
from workers.drain import drain
from workers.slot import Slot

INPUT = {"user_id": "u_42"}
SENT = statements()
#: What is only run, never planned.
_NOT_PLANNED = ("CREATE", "LISTEN", "SET")


@pytest.fixture
def graphs() -> list[Any]:
    return [*Registry.load(ROOT / "langgraph.json").described()]


@pytest.fixture
def database(empty_database: Database, graphs: list[Any]) -> Database:
    """As the release before has left it."""
    migrate_to_previous(empty_database.url, graphs)
    return empty_database


@pytest.fixture
def old(database: Database) -> Iterator["OldSession"]:
    with database.session() as conn:
        yield OldSession(conn)


class OldSession:
    """A worker and a producer of the release before: its statements, prepared as it did."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._conn = conn

    def _send(self, name: str, *args: Any) -> Any:
        cursor = self._conn.cursor(binary=True)
        row = cursor.execute(SENT[f"turn.{name}"], args, prepare=True).fetchone()
        assert row is not None and cursor.description is not None
        return dict(zip((c.name for c in cursor.description), row, strict=True))

    def submit(self, key: str, message_id: str = "m1", kind: str = "start") -> dict[str, Any]:
        message = {
            "graph": "refund",
            "key": key,
            "message_id": message_id,
            "kind": kind,
            "payload": INPUT,
            "payload_hash": message_id,
            "on_existing": "use_existing",
        }
        sent = {"message": json.dumps(message)}
        row = self._conn.execute(SENT["queries.accept"], sent).fetchone()
        assert row is not None
        reply: dict[str, Any] = json.loads(row[0])
        return reply

    def claim(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = self._send("claim", f"refund:{key}", "old:1:1", 3)
        return found

    def barrier(self, c: dict[str, Any], rows: Any, intent: Any = None) -> dict[str, Any]:
        thread = c["thread_id"]
        found: dict[str, Any] = self._send(
            *("barrier", thread, thread, c["epoch"], c["generation"], c["seq"], Jsonb(rows), b""),
            None if intent is None else Jsonb(intent),
        )
        return found

    def finish(self, c: dict[str, Any]) -> dict[str, Any]:
        """The end of a turn, and the next claim."""
        end = {"seq": c["seq"], "message": "done", "thread": "done", "error": None, "delay": 0}
        end |= {"failed": False, "crashed": False, "questions": []}
        following = {"owner": "old:1:1", "max_crashes": 3, "queue": "fleet", "tenant": ""}
        thread = c["thread_id"]
        found: dict[str, Any] = self._send(
            *("finish", thread, thread, c["epoch"], c["generation"], Jsonb({}), b""),
            *(Jsonb(end), Jsonb(following)),
        )
        return found


INTENT = {
    "request_id": "r1",
    "name": "payments.refund",
    "policy": "resend",
    "args_hash": "h",
    "effect_key": "/payments.refund:order:A",
    "again": True,
}
RESULT = {"results": [["r1", "done", None, None, None, None, 1]]}


def test_a_worker_does_not_start_before_the_migration(database: Database) -> None:
    """It names what is missing and the command."""
    assert since(), f"{NEWEST} is the newest: see tests/schemas/README.md"
    with database.session() as conn, pytest.raises(MigrationsMissing, match="fleet migrate") as e:
        migrations.require_migrated(conn)
    assert all(name in str(e.value) for name in since() if not name.endswith(".post.sql"))


def test_a_producer_submits_answers_and_looks_before_the_migration(
    database: Database, broker: Broker
) -> None:
    """Services that have the new client may be deployed before or after the fleet."""
    with Fleet(database.url, broker.url) as fleet:
        assert fleet.submit("refund", "A", INPUT).outcome == "accepted"
        assert fleet.submit_many([("refund", "B", INPUT)])[0].outcome == "accepted"
        assert fleet.status("refund:A").status == "idle"
        with pytest.raises(NothingToDo):
            fleet.retry("refund:A")
        fleet.cancel("refund:A")
        ask(database, "refund:B", "q1")
        assert fleet.answer("refund:B", "q1", "approved").outcome == "accepted"
        assert {thread.thread_id for thread in fleet.threads()} == {"refund:A", "refund:B"}


def test_the_migration_leaves_what_a_new_database_has(
    database: Database, databases: Any, graphs: list[Any]
) -> None:
    """Columns, constraints and indexes of an upgraded database are those of a fresh one."""
    looks = (
        """SELECT table_name, column_name, data_type, column_default, is_nullable
        FROM information_schema.columns WHERE table_schema = 'fleet' ORDER BY 1, 2""",
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'fleet' ORDER BY 1",
        """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'fleet'::regnamespace ORDER BY 1, 2""",
    )
    migrations.migrate(database.url, graphs)
    fresh = databases.create()
    try:
        for look in looks:
            assert database.fetch(look) == fresh.fetch(look)
    finally:
        databases.drop(fresh)


@pytest.mark.parametrize("name", [n for n, s in SENT.items() if not s.startswith(_NOT_PLANNED)])
def test_what_the_release_before_sends_is_understood_after_the_migration(
    name: str, planned: Database
) -> None:
    """Its functions, tables and columns are all there: Postgres plans the statement."""
    planned.fetch(f"EXPLAIN {without_parameters(SENT[name])}")


@pytest.fixture(scope="module")
def planned(databases: Any, graphs_of_module: list[Any]) -> Iterator[Database]:
    """Of the release before, then migrated."""
    made = databases.create(migrated=False)
    migrate_to_previous(made.url, graphs_of_module)
    assert migrations.migrate(made.url, graphs_of_module)[-1] == "functions"
    yield made
    databases.drop(made)


@pytest.fixture(scope="module")
def graphs_of_module() -> list[Any]:
    return [*Registry.load(ROOT / "langgraph.json").described()]


@pytest.mark.parametrize("moment", ["accepted", "claimed", "intended", "recorded"])
def test_a_turn_of_an_old_worker_goes_on_through_the_migration(
    moment: str, old: OldSession, database: Database, graphs: list[Any]
) -> None:
    """Its session lives on, with the statements that it has prepared, and ends the turn."""

    def reached(now: str) -> None:
        if now == moment:
            assert migrations.migrate(database.url, graphs) == [*since(), "functions"]

    warm = old.submit("before") and old.claim("before")
    old.barrier(warm, {})
    old.finish(warm)
    for key in ("A", "B"):
        assert old.submit(key)["outcome"] == "accepted"
    reached("accepted")
    claimed = old.claim("A")
    assert (claimed["result"], claimed["payload"]) == ("claimed", INPUT)
    reached("claimed")
    assert old.barrier(claimed, {}, INTENT)["state"] == "new"
    reached("intended")
    assert not old.barrier(claimed, RESULT)["stop"]
    reached("recorded")
    following = old.finish(claimed)
    assert (following["result"], following["thread_id"]) == ("claimed", "refund:B")
    old.finish(following)
    done = database.fetch("SELECT status, crashes FROM fleet.messages")
    assert done == [("done", 0)] * 3
    assert database.fetch("SELECT state FROM fleet.effects") == [("done",)]


def test_a_thread_of_an_old_worker_that_dies_is_ended_by_a_new_one(
    database: Database, graphs: list[Any], broker: Broker, shop: Shop, settings_env: None
) -> None:
    """Claimed before the migration and never let go; the new worker has it from the start."""
    order = shop.new_order()
    with database.session() as conn:
        dying = OldSession(conn)
        dying.submit(order)
        assert dying.claim(order)["result"] == "claimed"
    migrations.migrate(database.url, graphs)
    slot = Slot(get_settings(), Registry.load(ROOT / "langgraph.json"), "fleet")
    drain(slot, f"refund:{order}")
    slot.disconnect()
    with Fleet(database.url, broker.url) as fleet:
        found = fleet.status(f"refund:{order}")
    assert (found.status, found.messages[0].crashes) == ("done", 1)
    assert shop.refunds(order) == 1


def test_old_and_new_workers_take_turns_after_the_migration(
    old: OldSession, database: Database, graphs: list[Any], shop: Shop, settings_env: None
) -> None:
    """On one thread: what the one leaves the other reads."""
    migrations.migrate(database.url, graphs)
    order = shop.new_order()
    old.submit(order)
    slot = Slot(get_settings(), Registry.load(ROOT / "langgraph.json"), "fleet")
    drain(slot, f"refund:{order}")
    slot.disconnect()
    assert old.submit(order, "m2")["outcome"] == "existing"
    old.submit(order, "m3", kind="input")
    claimed = old.claim(order)
    assert (claimed["result"], claimed["seq"]) == ("claimed", 2)
    assert claimed["checkpoint_id"] is not None
    old.finish(claimed)
    rows = database.fetch("SELECT status, crashes FROM fleet.messages ORDER BY seq")
    assert rows == [("done", 0), ("done", 0)]
