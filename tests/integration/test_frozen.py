"""When Postgres is stopped in the middle of a session: its kernel still acknowledges all."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from infra.settings import Settings
from producers import Fleet, FleetUnavailable, NotConfigured, OutcomeUnknown
from producers.patience import ANSWER_WITHIN
from producers.surroundings import answer_within
from tests.harness import Broker, Database, clean_environment, eventually
from tests.integration.mailbox import INPUT, accepted
from tests.warm_commands import FLEET

LIMIT = 1.0


@pytest.fixture
def fleet(database: Database, broker: Broker) -> Iterator[Fleet]:
    """A client of little patience, with an open session."""
    with Fleet(database.url, broker.url, timeout=LIMIT) as fleet:
        fleet.submit("refund", "A1", INPUT)
        yield fleet


def backends(database: Database) -> list[int]:
    """The processes behind the clients' sessions."""
    sql = """SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'fleet-client'"""
    return [pid for (pid,) in database.fetch(sql)]


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Processes that do nothing within the block."""
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def gives_up(work: Callable[[], Any]) -> FleetUnavailable:
    """The error with which a call ends soon after the limit."""
    began = time.monotonic()
    with pytest.raises(FleetUnavailable, match="has not answered for 1 s") as caught:
        work()
    assert LIMIT <= time.monotonic() - began < LIMIT + 3
    return caught.value


def test_a_submit_to_a_stopped_backend_is_of_unknown_outcome(
    fleet: Fleet, database: Database
) -> None:
    """It names the id under which it can be sent again, which counts it once."""
    with stopped(backends(database)):
        error = gives_up(lambda: fleet.submit("refund", "A2", INPUT, message_id="m-2"))
        assert isinstance(error, OutcomeUnknown) and error.message_id == "m-2"
        assert "not known whether" in str(error) and "message_id, m-2" in str(error)
        # On a session of its own: the server takes others.
        again = fleet.submit("refund", "A2", INPUT, message_id="m-2")
    assert again.outcome == "accepted" and accepted(database) == 2


@pytest.mark.parametrize(
    "work",
    [
        lambda fleet: fleet.status("refund:A1"),
        lambda fleet: fleet.wait("refund:A1", 0.1),
        lambda fleet: fleet.threads(),
        lambda fleet: fleet.answer("refund:A1", None, "approved"),
        lambda fleet: fleet.workers(),
    ],
)
def test_a_look_at_a_stopped_backend_changed_nothing(
    work: Callable[[Fleet], Any], fleet: Fleet, database: Database
) -> None:
    """It comes back in time, and says so."""
    with stopped(backends(database)):
        error = gives_up(lambda: work(fleet))
    assert not isinstance(error, OutcomeUnknown) and "Nothing was changed" in str(error)


def test_a_transaction_that_is_stopped_is_given_up_once(fleet: Fleet, database: Database) -> None:
    """Its rollback is not waited for as well."""
    items = [("refund", f"k{n}", INPUT) for n in range(20)]
    fleet.submit_many(items[:1])
    with stopped(backends(database)):
        error = gives_up(lambda: fleet.submit_many(items))
    assert "send them again with the same message_ids" in str(error)


@pytest.mark.parametrize(
    "work",
    [
        lambda fleet: fleet.cancel("refund:A1"),
        lambda fleet: fleet.pause("refund"),
        lambda fleet: fleet.drain("w1"),
    ],
)
def test_what_an_operator_changes_is_no_message(
    work: Callable[[Fleet], Any], fleet: Fleet, database: Database
) -> None:
    """Whether it was done is to be looked up; there is no message_id to send again."""
    with stopped(backends(database)):
        error = gives_up(lambda: work(fleet))
    assert isinstance(error, OutcomeUnknown)
    assert "not known whether it was done" in str(error) and "message_id" not in str(error)


def test_those_that_wait_for_a_session_come_back_too(fleet: Fleet, database: Database) -> None:
    """More callers than sessions, all of them stopped."""

    all_in_use = threading.Barrier(4)

    def hold(_: int) -> None:
        fleet._sessions.run(lambda _: all_in_use.wait(20))

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(hold, range(4)))
        assert len(backends(database)) == 4
        began = time.monotonic()
        with stopped(backends(database)), database.connect() as conn:
            # Nor does the fresh session of the second round get anywhere.
            conn.execute("BEGIN; LOCK fleet.graphs, fleet.threads, fleet.messages")
            calls = [pool.submit(fleet.status, "refund:A1") for _ in range(12)]
            assert all(isinstance(call.exception(), FleetUnavailable) for call in calls)
        assert time.monotonic() - began < 4 * LIMIT + 3


def test_a_slow_answer_within_the_limit_is_waited_for(fleet: Fleet) -> None:
    """The limit is one for silence, per statement, not for the call."""

    def work(conn: psycopg.Connection[Any]) -> int:
        for _ in range(3):
            conn.execute("SELECT pg_sleep(0.5)")
        return 1

    assert fleet._sessions.run(work) == 1


def test_the_command_line_comes_back_too(database: Database, broker: Broker) -> None:
    """With one sentence, exit code 1, and the id to send it under again."""
    settings = {"postgres_url": database.url, "redis_url": broker.url, "client_timeout": 1}
    settings |= {"failpoints": "accept.before_commit=sleep:3"}
    argv = [*FLEET, "submit", "refund", "A1", "--json", "--message-id", "m-1"]
    argv += ["--input", json.dumps(INPUT)]
    command = subprocess.Popen(
        argv,
        env=clean_environment(**settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def connected() -> list[int]:
        assert command.poll() is None, command.communicate()
        return backends(database)

    with stopped(eventually(connected, 20)):
        _, said = command.communicate(timeout=20)
    error = json.loads(said.splitlines()[-1])["error"]
    assert command.returncode == 1
    assert (error["code"], error["message_id"]) == ("outcome_unknown", "m-1")


def test_the_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLEET_CLIENT_TIMEOUT, unless one is given; the thin client has the same default."""
    assert Settings.model_fields["client_timeout"].default == ANSWER_WITHIN
    assert answer_within(3, None) == 3
    assert answer_within(None, "postgresql://db") == ANSWER_WITHIN
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(NotConfigured, match="FLEET_CLIENT_TIMEOUT"):
            answer_within(bad, None)
