"""What a turn reads does not grow with the mail that waits for others."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from graphs.ledger import Intent
from producers import Fleet
from tests.harness import Database
from tests.integration.mailbox import APPROVE, INPUT
from workers.claim import Claim
from workers.claimed import claim
from workers.outcomes import Kind, Outcome, end

BACKLOG = 400
QUESTION = {
    "question_id": "q1",
    "kind": "approve",
    "payload": APPROVE,
    "response_schema": None,
    "expires_in": None,
}


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


def entries_read(database: Database, *sessions: psycopg.Connection[Any]) -> int:
    """Entries that were read in the indexes of our tables, by these sessions and before."""
    for session in sessions:
        session.execute("SELECT pg_stat_force_next_flush()")
    return int(
        database.value(
            "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname IN"
            " ('threads', 'messages', 'questions', 'effects')"
        )
    )


def test_a_turn_and_an_answer_read_little_beside_a_backlog(
    fleet: Fleet, database: Database, conn: psycopg.Connection[Any]
) -> None:
    """Also with plans that were made while the tables were small, and are kept."""
    fleet.submit_many([("refund", f"B{n}", INPUT) for n in range(BACKLOG)])
    fleet.submit("refund", "A1", INPUT)
    before = entries_read(database, conn)
    turn = Claim(conn, claim(conn, "refund:A1", "me", 3))
    turn.intend(Intent("fr_1", "pay", "resend", "hash", None))
    turn.finish(end(Outcome(Kind.WAITING, questions=(QUESTION,)), 1, 0.0), None)
    fleet.answer("refund:A1", "q1", "approved")
    fleet._sessions.run(lambda session: session.execute("SELECT pg_stat_force_next_flush()"))
    assert entries_read(database, conn) - before < BACKLOG / 4


def test_a_barrier_reads_little_beside_others_that_run(
    fleet: Fleet, database: Database, conn: psycopg.Connection[Any]
) -> None:
    """It looks its thread up by name, not among all that run."""
    fleet.submit_many([("refund", f"B{n}", INPUT) for n in range(BACKLOG)])
    turn = Claim(conn, claim(conn, "refund:B1", "me", 3))
    database.fetch("UPDATE fleet.threads SET status = 'running'")
    before = entries_read(database, conn)
    for n in range(4):
        turn.intend(Intent(f"fr_{n}", "pay", "resend", "hash", None))
    turn.finish(end(Outcome(Kind.DONE), 1, 0.0), None)
    assert entries_read(database, conn) - before < BACKLOG / 4
