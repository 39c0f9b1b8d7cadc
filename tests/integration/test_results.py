"""What an effect gave, as the client and the command line tell it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langchain_core.messages import AIMessage
from pydantic import BaseModel

from producers import Fleet
from tests.harness import Database
from tests.integration import test_cli
from tests.integration.mailbox import INPUT

cli = test_cli.cli
Cli = test_cli.Cli


class Model(BaseModel):
    refund_id: str
    amount: Decimal


@dataclass
class Line:
    order: str
    at: datetime


class State(StrEnum):
    paid = "paid"


AT = datetime(2026, 7, 1, 10, 30, tzinfo=UTC)
RESULTS: list[tuple[Any, Any]] = [
    (None, None),
    ("R1", "R1"),
    (7, 7),
    ([1, "a", None, True, 1.5], [1, "a", None, True, 1.5]),
    ({"refund_id": "R1", "n": 1, 2: "two"}, {"refund_id": "R1", "n": 1, "2": "two"}),
    (Decimal("1500.00"), "1500.00"),
    (
        [Model(refund_id="R1", amount=Decimal("1.50"))],
        [{"refund_id": "R1", "amount": "1.50"}],
    ),
    (Line("A1", AT), {"order": "A1", "at": AT.isoformat()}),
    (State.paid, "paid"),
    ({"b", "a"}, ["a", "b"]),
    (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Path("/tmp/a"), "/tmp/a"),
    (float("nan"), None),
    (b"\xff", "b'\\xff'"),
]


@pytest.mark.parametrize(("given", "told"), RESULTS, ids=[type(g).__name__ for g, _ in RESULTS])
def test_a_result_is_told_as_plain_data(
    cli: Cli, fleet: Fleet, database: Database, given: Any, told: Any
) -> None:
    """The same by `Fleet.status`, which imports nothing for it, and by `fleet show --json`."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    test_cli.store(database, thread, {}, given)
    (effect,) = fleet.status(thread).effects
    assert effect.result == told and type(effect.result) is type(told)
    (shown,) = cli("show", thread, "--json").json()["effects"]
    assert shown["result"] == told


def test_a_models_reply_is_told_with_what_it_said(fleet: Fleet, database: Database) -> None:
    """A recorded model call, as its message's fields."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    test_cli.store(database, thread, {}, AIMessage("Hello", id="1"))
    (effect,) = fleet.status(thread).effects
    assert (effect.result["content"], effect.result["type"]) == ("Hello", "ai")


@pytest.mark.parametrize(
    ("kind", "data"), [("pickle", b"\x80"), ("msgpack", b"\xc1"), ("new", b"")]
)
def test_what_can_not_be_read_is_none(
    fleet: Fleet, database: Database, kind: str, data: bytes
) -> None:
    """The thread can be looked at all the same, and its bytes are there."""
    thread = fleet.submit("refund", "A1", INPUT).thread_id
    test_cli.store(database, thread, {}, None)
    database.fetch("UPDATE fleet.effects SET result_type = %s, result = %s", kind, data)
    (effect,) = fleet.status(thread).effects
    assert (effect.result, effect.stored) == (None, (kind, data))
