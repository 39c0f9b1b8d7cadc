"""Sessions in Postgres: their states follow their threads, and the sweep closes those that
nobody comes back to."""

from collections.abc import Iterator
from typing import Any

import pytest

from infra.settings import get_settings
from producers.gateway.session_book import STATES
from tests.harness import Database
from tests.integration.mailbox import ask
from tests.integration.test_claim import accept
from workers.sessions import SessionSweep
from workers.sweeper import Sweeper

OPEN = "SELECT fleet.open_session(%s, '', 'u_42', 'refund', %s)"


@pytest.fixture
def sweeper(settings_env: None) -> Iterator[Sweeper]:
    made = Sweeper(get_settings(), "w@test", ["fleet"], 2, "prefork")
    yield made
    made.session.drop()


def tend(sweeper: Sweeper) -> int:
    """One look at the sessions, whenever the last one was."""
    return SessionSweep(get_settings().session_timeout, sweeper.session.job).tick()


def move(database: Database, seconds: float) -> None:
    database.fetch("SELECT fleet.move_clock(%s * interval '1 s')", seconds)


def session(database: Database, name: str = "s1") -> dict[str, Any]:
    found: dict[str, Any] = database.value(
        "SELECT fleet.session_seen(s) || jsonb_build_object('kept', s.state) "
        "FROM fleet.sessions s WHERE session_id = %s",
        name,
    )
    return found


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("idle", "active"),
        ("running", "active"),
        ("incompatible", "active"),
        ("waiting", "interrupted"),
        ("in_doubt", "interrupted"),
        ("done", "completed"),
        ("cancelled", "cancelled"),
        ("failed", "failed"),
    ],
)
def test_a_session_is_in_the_state_of_its_thread(
    sweeper: Sweeper, database: Database, status: str, state: str
) -> None:
    """At once for who reads it, and in the table after the sweep's next look."""
    database.fetch(OPEN, "s1", "refund:A")
    with database.connect() as conn:
        accept(conn, "A", "m1")
    database.fetch("UPDATE fleet.threads SET status = %s", status)
    assert session(database)["state"] == state
    tend(sweeper)
    assert session(database)["kept"] == state == STATES.get(status, "active")


def test_who_vanishes_is_timed_out_by_the_sweep(sweeper: Sweeper, database: Database) -> None:
    """Also when the gateway that had the connection was killed, and so left its presence."""
    database.fetch(OPEN, "s1", "refund:A")
    database.fetch("SELECT fleet.beat('gw', '{refund:A}', '{}')")
    move(database, 1700)
    database.fetch("SELECT fleet.beat('gw', '{refund:A}', '{}')")
    move(database, 1900)
    assert tend(sweeper) == 0
    assert database.value("SELECT count(*) FROM fleet.presence") == 0
    assert 190 < session(database)["absent"] < 260
    move(database, 3400)
    assert tend(sweeper) == 0
    move(database, 3600)
    assert tend(sweeper) == 1
    found = session(database)
    assert found["state"] == found["kept"] == "timed_out" and found["closed_at"]


def test_who_is_there_is_not_timed_out(sweeper: Sweeper, database: Database) -> None:
    """However long the session has been silent, and whatever another gateway says of it."""
    database.fetch(OPEN, "s1", "refund:A")
    move(database, 9000)
    database.fetch("SELECT fleet.beat('gw', '{refund:A}', '{}')")
    database.fetch("SELECT fleet.beat('other', '{}', '{refund:A}')")
    move(database, 9010)
    database.fetch("UPDATE fleet.sessions SET last_seen_at = fleet.now() - interval '1 day'")
    assert tend(sweeper) == 0


def test_who_comes_back_at_the_last_moment_is_not_timed_out(
    sweeper: Sweeper, database: Database
) -> None:
    """Their gateway says so before it has said that they are there."""
    database.fetch(OPEN, "s1", "refund:A")
    move(database, 9000)
    database.fetch("SELECT fleet.reopen_session('s1')")
    assert tend(sweeper) == 0 and not session(database)["closed_at"]


def test_a_session_in_which_work_goes_on_stays_open(sweeper: Sweeper, database: Database) -> None:
    """It is closed after the work has ended, in the state to which that led."""
    database.fetch(OPEN, "s1", "refund:A")
    with database.connect() as conn:
        accept(conn, "A", "m1")
    move(database, 9000)
    assert tend(sweeper) == 0
    database.fetch("UPDATE fleet.messages SET status = 'done'")
    database.fetch("UPDATE fleet.threads SET status = 'done'")
    assert tend(sweeper) == 1
    assert session(database)["state"] == "completed"


def test_a_question_outlives_its_session(sweeper: Sweeper, database: Database) -> None:
    """Closed is the session only: who comes back finds it open, with what it asks."""
    database.fetch(OPEN, "s1", "refund:A")
    with database.connect() as conn:
        accept(conn, "A", "m1")
    ask(database, "refund:A", "q1")
    move(database, 9000)
    assert tend(sweeper) == 1 and session(database)["state"] == "timed_out"
    assert database.value("SELECT status FROM fleet.questions") == "open"
    database.fetch("SELECT fleet.reopen_session('s1')")
    assert session(database)["state"] == "interrupted" and not session(database)["closed_at"]
    assert tend(sweeper) == 0


def test_sessions_never_used_are_forgotten_after_a_day(
    sweeper: Sweeper, database: Database
) -> None:
    """They have no thread whose retention would take them along."""
    database.fetch(OPEN, "s1", "refund:A")
    database.fetch(OPEN, "s2", "refund:B")
    with database.connect() as conn:
        accept(conn, "B", "m1")
    database.fetch("UPDATE fleet.messages SET status = 'done'")
    move(database, 9000)
    assert tend(sweeper) == 2
    move(database, 9000 + 90_000)
    tend(sweeper)
    assert database.fetch("SELECT session_id FROM fleet.sessions") == [("s2",)]


def test_a_session_goes_with_its_thread(database: Database) -> None:
    """What retention takes, it takes whole."""
    database.fetch(OPEN, "s1", "refund:A")
    database.fetch("SELECT fleet.remove_threads('{refund:A}')")
    assert database.value("SELECT count(*) FROM fleet.sessions") == 0


def test_no_session_of_an_unknown_graph(database: Database) -> None:
    """Nothing is written for a name that no graph has."""
    sql = "SELECT fleet.open_session('s', '', 'u', 'nope', 'nope:1')"
    assert database.value(sql) is None
    assert database.value("SELECT count(*) FROM fleet.sessions") == 0
