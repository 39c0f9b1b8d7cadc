"""Where a thread is left when the last of its mail was given up."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from graphs.ledger import Intent
from producers import Fleet
from tests.harness import Database
from tests.integration.mailbox import INPUT
from tests.integration.test_claim import finish, take
from workers.claim import Claim
from workers.outcomes import Kind

A = "refund:A"


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


def in_doubt(conn: psycopg.Connection[Any]) -> None:
    """The thread's next message, ended in doubt about request r1."""
    held = Claim(conn, take(conn, "A"))
    held.intend(Intent("r1", "pay", "park", "h", None, False))
    finish(held, Kind.IN_DOUBT)


@pytest.mark.parametrize(("done_before", "left"), [(False, "cancelled"), (True, "done")])
def test_a_thread_does_not_stay_idle_when_what_was_resolved_is_dropped(
    fleet: Fleet, conn: psycopg.Connection[Any], done_before: bool, left: str
) -> None:
    """The resolution has nothing to let go on: the thread is left as the drop alone leaves it."""
    fleet.submit("refund", "A", INPUT)
    if done_before:
        finish(Claim(conn, take(conn, "A")), Kind.DONE)
        fleet.send(A, INPUT)
    in_doubt(conn)
    fleet.resolve(A, "r1", happened=False)
    assert fleet.drop(A).status == "idle"
    finish(Claim(conn, take(conn, "A")), Kind.DONE, resumes=True)
    assert fleet.status(A).status == left
