"""Accepting inside the caller's own transaction."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from producers import (
    Fleet,
    FleetUnavailable,
    InvalidInput,
    UnknownGraph,
)
from tests.harness import Broker, Database
from tests.integration.mailbox import INPUT, accepted


@pytest.mark.parametrize("row_factory", [psycopg.rows.tuple_row, dict_row])
def test_it_commits_with_the_callers_transaction(
    fleet: Fleet, database: Database, broker: Broker, row_factory: Any
) -> None:
    """Before the commit there is nothing; after it the message, and nothing published."""
    with psycopg.connect(database.url, row_factory=row_factory) as conn:
        conn.execute("CREATE TABLE orders (id text)")
        conn.execute("INSERT INTO orders VALUES ('A1')")
        receipt = fleet.submit("refund", "A1", INPUT, connection=conn)
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        assert accepted(database) == 0
        conn.commit()
    assert accepted(database) == 1
    assert database.value("SELECT count(*) FROM orders") == 1
    assert broker.client.llen("fleet") == 0


def test_it_is_rolled_back_with_the_callers_transaction(fleet: Fleet, database: Database) -> None:
    """A business change that fails takes its message with it."""
    with database.connect() as conn, pytest.raises(ZeroDivisionError), conn.transaction():
        fleet.submit("refund", "A1", INPUT, connection=conn)
        raise ZeroDivisionError
    assert accepted(database) == 0


def test_a_refusal_leaves_the_callers_transaction_usable(fleet: Fleet, database: Database) -> None:
    """The caller may go on without the message."""
    with psycopg.connect(database.url) as conn:
        for wrong in ({}, {"user_id": 1}):
            with pytest.raises(InvalidInput):
                fleet.submit("refund", "A1", wrong, connection=conn)
        with pytest.raises(UnknownGraph):
            fleet.submit("nope", "A1", {}, connection=conn)
        fleet.submit("refund", "A1", INPUT, connection=conn)
    assert accepted(database) == 1


def test_the_commit_notifies(fleet: Fleet, database: Database) -> None:
    """The sweeper's leader hears of it after the commit, not before."""
    with database.connect() as listening, psycopg.connect(database.url) as conn:
        listening.execute("LISTEN fleet_mail")
        fleet.submit("refund", "A1", INPUT, connection=conn)
        assert list(listening.notifies(timeout=0.1)) == []
        conn.commit()
        heard = [n.payload for n in listening.notifies(timeout=5, stop_after=1)]
    assert heard == ["refund:A1"]


def test_the_callers_own_settings_stay(fleet: Fleet, database: Database) -> None:
    """How long its later statements wait for locks is not ours to change."""
    with psycopg.connect(database.url) as conn:
        conn.execute("SET LOCAL lock_timeout = '7s'")
        fleet.submit("refund", "A1", INPUT, connection=conn)
        assert conn.execute("SHOW lock_timeout").fetchone() == ("7s",)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_is_told_to_run_again(fleet: Fleet, database: Database, level: str) -> None:
    """It can't see the message that was accepted meanwhile, under the same id or another."""
    fleet.submit("refund", "A1", INPUT, message_id="m1")
    for key, message_id in (("A2", "m2"), ("A2", "m3")):
        with psycopg.connect(database.url) as conn:
            conn.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            conn.execute("SELECT count(*) FROM fleet.messages")
            fleet.submit("refund", "A2", INPUT, message_id="m2", on_existing="restart")
            with pytest.raises(FleetUnavailable, match="run the whole transaction again"):
                fleet.submit(
                    "refund",
                    key,
                    INPUT,
                    message_id=message_id,
                    on_existing="restart",
                    connection=conn,
                )
        database.fetch("DELETE FROM fleet.messages WHERE thread_id = 'refund:A2'")
        database.fetch("DELETE FROM fleet.threads WHERE thread_id = 'refund:A2'")
