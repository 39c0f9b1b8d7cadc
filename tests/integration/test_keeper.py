"""The keeper beside a slot: what is buffered gets committed, and a silent turn is heard of."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from graphs.control import ClaimLost
from infra.settings import Settings
from tests.harness import Database, eventually
from tests.integration.test_claim import accept, take
from workers.buffer import Write
from workers.claim import Claim
from workers.gate import Gate
from workers.hung import Hung
from workers.keeper import Keeper

WRITE = ("", "1ef", "task", 0), Write("~", "amount", ("null", b""), replaces=False)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Keeper:
    monkeypatch.setenv("FLEET_FLUSH_AFTER", "0.02")
    monkeypatch.setenv("FLEET_PULSE_INTERVAL", "0.05")
    monkeypatch.setenv("FLEET_HUNG_GRACE", "0.2")
    return Keeper(Settings())


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
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


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Threads whose node the keeper has given up; the process goes on."""
    found: list[str] = []
    monkeypatch.setattr("workers.keeper.hung.give_up", lambda _, thread_id: found.append(thread_id))
    return found


def test_a_node_that_stays_after_its_claim_is_lost_is_given_up(
    keeper: Keeper, claim: Claim, database: Database, given_up: list[str]
) -> None:
    """After its grace, and once."""
    pid = claim.conn.info.backend_pid
    with keeper.watching(claim, flushes=True):
        database.fetch("SELECT pg_terminate_backend(%s)", pid)
        eventually(lambda: claim.lost)
        assert not given_up
        began = time.monotonic()
        eventually(lambda: given_up)
        assert time.monotonic() - began < 5
        silent = time.monotonic() + 0.3
        eventually(lambda: time.monotonic() > silent)
    assert given_up == ["refund:A"]


def test_a_node_that_returns_in_its_grace_is_not_given_up(
    keeper: Keeper, claim: Claim, database: Database, given_up: list[str]
) -> None:
    """Nor one whose claim holds, however long it takes."""
    with keeper.watching(claim, flushes=True):
        long = time.monotonic() + 0.5
        eventually(lambda: time.monotonic() > long)
        claim._poison = ClaimLost("taken away")
        eventually(lambda: keeper._watch is not None and keeper._watch.until is not None)
    late = time.monotonic() + 0.4
    eventually(lambda: time.monotonic() > late)
    assert given_up == []


def test_a_turn_whose_rows_were_refused_is_given_up_only_after_the_sweep_would(
    keeper: Keeper, claim: Claim, given_up: list[str]
) -> None:
    """Its session lives on: a long node may still come to its end."""
    with keeper.watching(claim, flushes=True):
        claim.poison(ValueError("can't be stored"))
        eventually(lambda: keeper._watch is not None and keeper._watch.until is not None)
        assert keeper._watch is not None and keeper._watch.until is not None
        assert keeper._watch.until > time.monotonic() + 500


def test_a_slot_that_hangs_keeps_no_message_from_running_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was waited for until it was given up; what it does in the gate later counts not."""
    gate, hung = Gate(), Hung()
    monkeypatch.setattr("workers.hung.gate", gate)
    hung.slots = 20
    with gate.ordinary() as entered:
        assert entered
        hung.give_up(threading.get_ident(), "refund:A")
        with ThreadPoolExecutor(1) as other:

            def suspect() -> bool:
                with gate.alone(lambda: None):
                    return True

            assert other.submit(suspect).result(5)
    hung.returned(threading.get_ident())
    assert gate.wait()
