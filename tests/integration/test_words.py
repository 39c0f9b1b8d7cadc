"""The closed sets of words are held where words come in: a wrong one writes nothing."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import CheckViolation

from graphs.ledger import Intent, Result
from tests.harness import Database
from workers.claim import Claim, WriteRefused
from workers.claimed import claim
from workers.outcomes import Kind, Outcome, end

INTENT = Intent("fr_1", "pay", "resend", "hash", None)


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


def accept(conn: psycopg.Connection[Any], kind: str) -> None:
    body = {"graph": "refund", "key": "A1", "message_id": kind, "kind": kind, "payload": {}}
    conn.execute("SELECT fleet.accept(%s::jsonb)", (json.dumps(body | {"payload_hash": "h"}),))


@pytest.fixture
def claimed(conn: psycopg.Connection[Any]) -> Claim:
    accept(conn, "start")
    return Claim(conn, claim(conn, "refund:A1", "me", 3))


@pytest.mark.parametrize("kind", ["begin", "start ", "start@", "Start"])
def test_a_kind_of_message_that_is_none_is_not_accepted(
    conn: psycopg.Connection[Any], database: Database, kind: str
) -> None:
    """Neither a thread nor a message comes of it; a newer form of a kind is taken."""
    with pytest.raises(CheckViolation, match="is no kind of a message"):
        accept(conn, kind)
    assert database.value("SELECT count(*) FROM fleet.threads") == 0
    accept(conn, "start")
    accept(conn, "input@2")


def test_an_effect_of_no_policy_is_not_begun(claimed: Claim, database: Database) -> None:
    """The ledger stays as it was."""
    with pytest.raises(WriteRefused, match="hope is no policy"):
        claimed.intend(Intent("fr_1", "pay", "hope", "hash", None))
    assert database.value("SELECT count(*) FROM fleet.effects") == 0


def test_an_effect_ends_in_a_state_of_the_set(claimed: Claim, database: Database) -> None:
    """Else its intent stands."""
    claimed.intend(INTENT)
    claimed.note(Result("fr_1", "maybe", None, None, 1, None))  # type: ignore[arg-type]
    with pytest.raises(WriteRefused, match="maybe is no state"):
        claimed.flush()
    assert database.value("SELECT state FROM fleet.effects") == "intent"


@pytest.mark.parametrize("which", ["message", "thread"])
def test_a_turn_ends_in_a_status_of_the_set(claimed: Claim, database: Database, which: str) -> None:
    """Else it has not ended."""
    written = end(Outcome(Kind.DONE), 1, 0.0) | {which: "finished"}
    with pytest.raises(WriteRefused, match=f"finished is no status of a {which}"):
        claimed.finish(written, None)
    assert database.value("SELECT status FROM fleet.threads") == "running"
    assert database.value("SELECT status FROM fleet.messages") == "claimed"
