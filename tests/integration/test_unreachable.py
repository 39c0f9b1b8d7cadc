"""When Postgres or the broker is down, hangs, or is not what it should be."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from producers import (
    Fleet,
    FleetUnavailable,
    NotConfigured,
    NotMigrated,
)
from producers.sessions import Sessions
from tests.harness import Broker, Database, eventually
from tests.integration.mailbox import INPUT, accepted, deaf_server, nobody


def seconds(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


@pytest.mark.parametrize("server", [deaf_server, nobody])
def test_a_broker_that_is_down_or_hangs_stops_no_submit(database: Database, server: Any) -> None:
    """Accepted within 2 s all the same, and the receipt says that nobody was woken."""
    with server() as port, Fleet(database.url, f"redis://127.0.0.1:{port}/0") as fleet:
        began = time.monotonic()
        receipt = fleet.submit("refund", "A1", INPUT)
        assert time.monotonic() - began < 2
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        receipts = fleet.submit_many([("refund", f"k{n}", INPUT) for n in range(20)])
        assert not any(r.published for r in receipts)
    assert accepted(database) == 21


def test_a_hung_broker_is_not_tried_by_each_in_turn(database: Database) -> None:
    """One caller in a second learns that it hangs; the others go on at once."""
    with deaf_server() as port, Fleet(database.url, f"redis://127.0.0.1:{port}/0") as fleet:
        took = [seconds(lambda n=n: fleet.submit("refund", f"k{n}", INPUT)) for n in range(6)]
    assert sum(took) < 2.5
    assert accepted(database) == 6


def test_a_hung_broker_holds_up_no_crowd(database: Database) -> None:
    """Twenty at once are all accepted within 2 s of each other's start."""
    with deaf_server() as port, Fleet(database.url, f"redis://127.0.0.1:{port}/0") as fleet:
        fleet.threads()  # connected

        def submit(n: int) -> float:
            return seconds(lambda: fleet.submit("refund", f"k{n}", INPUT))

        with ThreadPoolExecutor(20) as pool:
            assert max(pool.map(submit, range(20))) < 2
    assert accepted(database) == 20


def test_a_broker_that_lost_its_connections_and_scripts_is_used_again(
    fleet: Fleet, broker: Broker
) -> None:
    """A restart of the broker costs no receipt its wake-up."""
    assert fleet.submit("refund", "A1", INPUT).published
    broker.client.client_kill_filter(_type="normal", skipme=True)
    broker.client.script_flush()
    broker.client.delete("fleet")
    assert fleet.submit("refund", "A2", INPUT).published
    assert broker.client.llen("fleet") == 1


def test_without_a_broker_the_sweeper_is_notified(database: Database) -> None:
    """No broker's address: the message is accepted and its thread is notified."""
    with database.connect() as listening, Fleet(database.url) as fleet:
        listening.execute("LISTEN fleet_mail")
        assert not fleet.submit("refund", "A1", INPUT).published
        fleet.submit_many([("refund", "A2", INPUT)])
        heard = [n.payload for n in listening.notifies(timeout=5, stop_after=2)]
    assert heard == ["refund:A1", "refund:A2"]


def test_postgres_down_accepts_nothing(broker: Broker) -> None:
    """A clear error at once."""
    with (
        nobody() as port,
        Fleet(f"postgresql://x@127.0.0.1:{port}/x", broker.url) as fleet,
        pytest.raises(FleetUnavailable, match="Nothing was accepted"),
    ):
        fleet.submit("refund", "A1", INPUT)
    assert broker.client.llen("fleet") == 0


def test_a_postgres_that_hangs_is_given_up(broker: Broker) -> None:
    """Within the time to connect; libpq's least is 2 s."""
    with deaf_server() as port:
        url = f"postgresql://x@127.0.0.1:{port}/x?connect_timeout=2"
        with Fleet(url, broker.url) as fleet:
            began = time.monotonic()
            with pytest.raises(FleetUnavailable):
                fleet.submit("refund", "A1", INPUT)
            assert time.monotonic() - began < 4


def test_lost_connections_are_replaced(fleet: Fleet, database: Database) -> None:
    """A restart of Postgres between two calls is not noticed."""
    fleet.submit("refund", "A1", INPUT)
    for kill in range(3):
        database.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'fleet-client'"""
        )
        assert fleet.submit("refund", f"B{kill}", INPUT).outcome == "accepted"


def test_work_whose_connection_goes_is_done_again_once(database: Database) -> None:
    """Its first try may have been committed: it is repeated, and then called unknown."""
    sessions = Sessions(database.url)
    tries: list[int] = []

    def die(conn: psycopg.Connection[Any], times: int) -> int:
        tries.append(conn.info.backend_pid)
        if len(tries) <= times:
            conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return len(tries)

    assert sessions.run(lambda conn: die(conn, 1)) == 2
    tries.clear()
    with pytest.raises(FleetUnavailable, match="not known whether"):
        sessions.run(lambda conn: die(conn, 9))
    assert len(set(tries)) == len(tries) == 2
    sessions.close()


def test_a_message_in_another_open_transaction_is_not_waited_for_for_ever(
    fleet: Fleet, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that forgot to commit stops others on its thread, with a clear error."""
    from producers import queries

    impatient = queries._QUERIES["accept"].replace("'10s'", "'200ms'")
    assert "200ms" in impatient
    monkeypatch.setitem(queries._QUERIES, "accept", impatient)
    with psycopg.connect(database.url) as conn:
        fleet.submit("refund", "A1", INPUT, connection=conn)
        with pytest.raises(FleetUnavailable, match="open transaction"):
            fleet.submit("refund", "A1", INPUT)
        assert fleet.submit("refund", "A2", INPUT).outcome == "accepted"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (
            "40001",
            "undid it for another transaction: out of order. Nothing was accepted; try again",
        ),
        ("40P01", "undid it for another transaction"),
        ("53100", "disk of the database is full: out of order. Nothing was accepted"),
        ("53200", "out of resources: out of order. Nothing was accepted; its operator"),
        ("57014", "cancelled the statement: .*statement_timeout"),
        ("58030", "trouble with its disk"),
        ("23505", "Postgres refused"),
        ("57P01", "can't be reached"),
    ],
)
def test_what_postgres_refuses_is_not_called_unreachable(
    state: str, told: str, database: Database
) -> None:
    """Each kind has its sentence; only a server that is going can't be reached."""
    sessions = Sessions(database.url)
    code = f"DO $$ BEGIN RAISE EXCEPTION 'out of order' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(FleetUnavailable, match=told):
        sessions.run(lambda conn: conn.execute(code.encode()))
    sessions.close()


def test_missing_migrations_are_told(empty_database: Database, broker: Broker) -> None:
    """With what to run; nothing is published."""
    with Fleet(empty_database.url, broker.url) as fleet:
        for use in (
            lambda: fleet.submit("refund", "A1", INPUT),
            lambda: fleet.submit_many([("refund", "A1", INPUT)]),
            lambda: fleet.status("refund:A1"),
            lambda: fleet.threads(),
            lambda: fleet.answer("refund:A1", None, "approved"),
        ):
            with pytest.raises(NotMigrated, match="fleet migrate"):
                use()
    assert broker.client.llen("fleet") == 0


@pytest.mark.parametrize(
    ("postgres", "redis"),
    [
        ("not a url", None),
        ("postgresql://x@127.0.0.1/x", "http://127.0.0.1"),
        ("postgresql://x@127.0.0.1/x", "redis://127.0.0.1:port"),
    ],
)
def test_addresses_that_can_not_be_used_are_told(postgres: str, redis: str | None) -> None:
    """Before anything is sent."""
    with pytest.raises(NotConfigured, match="looks like"):
        Fleet(postgres, redis).submit("refund", "A1", INPUT)


def test_without_arguments_the_settings_count(
    settings_env: None, database: Database, broker: Broker
) -> None:
    """Fleet() finds what the environment names."""
    with Fleet() as fleet:
        assert fleet.submit("refund", "A1", INPUT).published
    assert accepted(database) == 1


def test_a_fleet_can_be_used_on_both_sides_of_a_fork(fleet: Fleet, database: Database) -> None:
    """A service may make it before its server forks."""
    fleet.submit("refund", "A1", INPUT)
    pid = forked(lambda: fleet.submit("refund", "A2", INPUT))
    fleet.submit("refund", "A3", INPUT)
    assert ended_well(pid) and fleet.submit("refund", "A4", INPUT).outcome == "accepted"
    assert accepted(database) == 4


def test_a_fork_while_other_threads_use_the_fleet_stops_nobody(
    fleet: Fleet, database: Database
) -> None:
    """What they had locked at that moment is free in the child."""
    assert fleet._wakes is not None
    with fleet._wakes._lock, fleet._schemas._lock, fleet._sessions._lock:
        pid = forked(lambda: fleet.submit("refund", "A1", INPUT))
    assert ended_well(pid) and accepted(database) == 1


def forked(work: Callable[[], Any]) -> int:
    """A child's pid, which works, and is killed where that takes ten seconds."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return pid


def ended_well(pid: int) -> bool:
    """Whether the child has, once it has ended."""
    status: list[int] = []

    def ended() -> bool:
        found, code = os.waitpid(pid, os.WNOHANG)
        status.append(code)
        return bool(found)

    return eventually(ended, timeout=15) and status[-1] == 0
