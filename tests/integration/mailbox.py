"""What the client's tests share: threads as turns leave them, and servers that don't answer."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from producers import AnswerRefused, Fleet
from tests.harness import Database
from workers.drain import drain
from workers.slot import Slot

INPUT = {"user_id": "u_42"}
APPROVE = {
    "action_requests": [{"name": "refund", "args": {"amount": "1500.00"}}],
    "review_configs": [{"action_name": "refund", "allowed_decisions": ["approve", "reject"]}],
}


def ask(
    database: Database,
    thread_id: str,
    question_id: str,
    *,
    kind: str = "approve",
    payload: Any = APPROVE,
    schema: Any = None,
    status: str = "open",
    expires_in: float | None = None,
) -> None:
    """What a turn that ends in a question leaves behind."""
    database.fetch(
        """INSERT INTO fleet.questions (thread_id, question_id, generation, kind, payload,
            response_schema, status, asked_epoch, asked_at, expires_at)
        VALUES (%s, %s, 1, %s, %s, %s, %s, 1, fleet.now(), fleet.now() + %s * interval '1 s')""",
        thread_id,
        question_id,
        kind,
        json.dumps(payload),
        json.dumps(schema) if schema else None,
        status,
        expires_in,
    )
    settle(database, thread_id, "waiting")


def settle(database: Database, thread_id: str, status: str) -> None:
    """What the end of a turn leaves behind."""
    database.fetch(
        "UPDATE fleet.messages SET status = 'done' WHERE thread_id = %s AND status = 'pending'",
        thread_id,
    )
    database.fetch("UPDATE fleet.threads SET status = %s WHERE thread_id = %s", status, thread_id)


def accepted(database: Database) -> int:
    """Messages in the mailbox."""
    return int(database.value("SELECT count(*) FROM fleet.messages"))


def refused(work: Callable[[], Any]) -> AnswerRefused:
    with pytest.raises(AnswerRefused) as caught:
        work()
    assert str(caught.value).isprintable() and caught.value.data["thread_id"]
    return caught.value


@contextmanager
def deaf_server() -> Iterator[int]:
    """Takes connections and never says a word, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@contextmanager
def nobody() -> Iterator[int]:
    """A port where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    yield port


def begun(fleet: Fleet, slot: Slot, graph: str, key: str = "A", **input: Any) -> str:
    """A thread of a graph of tests/graphs after its first turn."""
    thread = fleet.submit(graph, key, {"names": [], "steps": []} | input).thread_id
    drain(slot, thread)
    return thread
