"""The sweep among others' transactions, databases and mistakes: it goes on."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from infra.settings import get_settings
from infra.sql import query
from producers.wakeup import NO_LIMIT, Wake, push
from tests.harness import Broker, Database, Databases, eventually
from tests.integration.mailbox import ask
from tests.integration.test_claim import accept, take
from tests.integration.test_sweeper import woken
from workers.sweeper import Sweeper


def make(queues: tuple[str, ...] = ("fleet",), slots: int = 2) -> Sweeper:
    return Sweeper(get_settings(), "w@test", [*queues], slots, "prefork")


@pytest.fixture
def sweeper(settings_env: None) -> Iterator[Sweeper]:
    made = make()
    yield made
    made.session.drop()


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as conn:
        yield conn


def test_the_leader_of_another_database_is_none_of_ours(
    sweeper: Sweeper, databases: Databases, database: Database
) -> None:
    """Neither seen, nor ended when it is silent, nor named by the benchmark."""
    other = databases.create()
    try:
        with other.connect() as leading, database.connect() as conn:
            assert leading.execute(query("lead")).fetchone() == (True,)
            for name in ("leader", "sweep_leader"):
                assert conn.execute(query(name)).fetchall() == []
                assert len(leading.execute(query(name)).fetchall()) == 1
    finally:
        databases.drop(other)


def test_a_leader_of_which_the_server_tells_nothing_is_left_alone(
    sweeper: Sweeper, database: Database
) -> None:
    """With track_activities off there is no time of its last statement."""
    with database.connect() as leading:
        leading.execute("SET track_activities = off")
        assert leading.execute(query("lead")).fetchone() == (True,)
        assert [silent for _, silent in sweeper.session.run("leader")] == [0.0]
        sweeper._watch_leader()
        leading.execute("SELECT 1")


def test_a_sweeper_survives_what_nobody_thought_of(
    settings_env: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any error is logged with its traceback, and the next round goes well."""
    wrong = [TypeError("what nobody thought of")]

    def tick() -> dict[str, int]:
        if wrong:
            raise wrong.pop()
        ticked.append(True)
        return {}

    sweeper, ticked = make(), []
    monkeypatch.setattr(sweeper, "tick", tick)
    sweeper.start()
    try:
        assert eventually(lambda: ticked)
        assert "TypeError: what nobody thought of" in caplog.text
    finally:
        sweeper.stop()


def test_a_row_that_a_producer_holds_keeps_no_other_thread_waiting(
    sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """Its cancel is left to another tick; orphans are woken, other cancels carried out."""
    for key in "ABC":
        accept(conn, key, "m1")
    for key in "AB":
        ask(database, f"refund:{key}", "q1")
        conn.execute(
            "UPDATE fleet.threads SET cancel_requested = true WHERE thread_id = %s",
            [f"refund:{key}"],
        )
    with database.session() as victim:
        take(victim, "C")
    with database.connect() as producer, producer.transaction():
        producer.execute(
            "UPDATE fleet.questions SET status = 'answered' WHERE thread_id = 'refund:A'"
        )
        found = sweeper.tick()
        assert (found["cancelled"], found["orphans"]) == (1, 1)
        assert sweeper.tick()["cancelled"] == 0
        assert sweeper.session._conn is not None and not sweeper.session._conn.closed
    sweeper.settling.put_off.keep(set())
    assert sweeper.tick()["cancelled"] == 1
    assert database.fetch("SELECT DISTINCT status FROM fleet.threads WHERE key <> 'C'") == [
        ("cancelled",)
    ]


def test_a_heartbeat_waits_for_nobody(sweeper: Sweeper, database: Database) -> None:
    """A row of the workers' table that is held costs that heartbeat only."""
    sweeper._round()
    with database.connect() as operator, operator.transaction():
        operator.execute("UPDATE fleet.workers SET drain_requested = true")
        sweeper._beat = 0.0
        sweeper._round()
        assert sweeper.session.leads


def test_a_worker_that_comes_back_under_its_name_says_anew_what_it_is(
    settings_env: None, database: Database
) -> None:
    """Queues, slots, wake-ups and pool, although the row of the one before is there."""
    for queues, slots in ((("fleet",), 2), (("fleet", "slow"), 5)):
        sweeper = make(queues, slots)
        sweeper._round()
        sweeper.session.drop()
    assert database.fetch("SELECT queues, slots, wakeups FROM fleet.workers") == [
        (["fleet", "slow"], 5, 20)
    ]


def test_a_wake_up_that_a_full_queue_refused_is_not_put_off(
    sweeper: Sweeper, conn: Any, broker: Broker
) -> None:
    """The thread is woken as soon as the queue has room."""
    accept(conn, "A", "m1")
    conn.execute("SELECT fleet.move_clock('3 s')")
    push(broker.client, [Wake("fleet", "refund:X", NO_LIMIT)] * 16)
    assert sweeper.tick()["overdue"] == 1
    broker.client.flushdb()
    sweeper.tick()
    assert woken(broker) == ["refund:A"]
