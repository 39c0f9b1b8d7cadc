"""The keeper beside a slot: what is buffered gets committed, and a silent turn is heard of."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from infra.settings import Settings
from tests.harness import Database, eventually
from tests.integration.test_claim import accept, take
from workers.buffer import Write
from workers.claim import Claim
from workers.keeper import Keeper

WRITE = ("", "1ef", "task", 0), Write("~", "amount", ("null", b""), replaces=False)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setenv("FLEET_FLUSH_AFTER", "0.02")
    monkeypatch.setenv("FLEET_PULSE_INTERVAL", "0.05")
    return Keeper(Settings())


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as conn:
        yield conn


@pytest.fixture
def claim(conn: psycopg.Connection[Any]) -> Claim:
    accept(conn, "A", "m1")
    return Claim(conn, take(conn, "A"))


def written(database: Database) -> int:
    return int(database.value("SELECT count(*) FROM checkpoint_writes"))


def test_what_is_buffered_is_committed_while_a_node_runs_on(
    keeper: Keeper, claim: Claim, database: Database
) -> None:
    """A long node does not hold back the step before it."""
    with keeper.watching(claim, flushes=True):
        with claim.lock:
            claim.buffer.add_write(*WRITE)
        eventually(lambda: written(database) == 1)


@pytest.mark.parametrize("flushes", [True, False])
def test_a_cancel_is_heard_in_a_node_that_writes_nothing(
    flushes: bool, keeper: Keeper, claim: Claim, database: Database
) -> None:
    """The pulse brings it, for graphs with static breakpoints too."""
    with keeper.watching(claim, flushes):
        assert not claim.stop_requested
        database.fetch("UPDATE fleet.threads SET cancel_requested = true")
        eventually(lambda: claim.stop_requested)


def test_steps_before_a_breakpoint_are_left_to_the_end_of_the_turn(
    keeper: Keeper, claim: Claim, database: Database
) -> None:
    """Pulses go out, and what is buffered stays."""
    with keeper.watching(claim, flushes=False):
        with claim.lock:
            claim.buffer.add_write(*WRITE)
        before = claim.silence()
        eventually(lambda: claim.buffer.age() > 0.1 and claim.silence() <= before + 0.1)
        assert written(database) == 0 and claim.buffer.writes


def test_a_silent_turn_learns_that_its_session_is_gone(
    keeper: Keeper, claim: Claim, database: Database
) -> None:
    """Before it would send anything."""
    pid = claim.conn.info.backend_pid
    with keeper.watching(claim, flushes=True):
        database.fetch("SELECT pg_terminate_backend(%s)", pid)
        eventually(lambda: claim.lost)


def test_a_pulse_goes_out_once_in_its_interval(
    keeper: Keeper, claim: Claim, database: Database
) -> None:
    """Not at each look of the keeper's: an idle turn costs next to nothing."""
    keeper._pulse_interval = 30.0
    with keeper.watching(claim, flushes=True):
        silent = claim.silence()
        eventually(lambda: claim.silence() > silent + 0.2)
