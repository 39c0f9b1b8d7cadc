"""The checker finds each kind of fault: one is made by hand, and it reports that one only."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from rich.console import Console

from producers.chaos.books import ANY, Act, Expected, Sent, about, like, shop_acts
from producers.chaos.checker import check
from producers.chaos.findings import KINDS, Report
from producers.messages import run_id
from tests.harness import Broker, Database, eventually

THREAD = "refund:T1"
STATE = {"order_id": "T1", "refund_id": "re_1"}


@dataclass
class Left:
    """What a run without faults has left: a thread with two messages and one effect."""

    conn: psycopg.Connection[Any]
    broker: Broker
    sent: list[Sent] = field(default_factory=lambda: [Sent(THREAD, "m1"), Sent(THREAD, "m2")])
    expected: dict[str, Expected] = field(
        default_factory=lambda: {THREAD: Expected("done", {**STATE, "refund_id": ANY})}
    )
    acts: list[Act] = field(default_factory=lambda: [Act("refund of T1", "fr_1")])
    effects: dict[str, int] = field(default_factory=lambda: {"refund of T1": 1})
    groups: list[int] = field(default_factory=list)

    def judge(self) -> Report:
        return check(
            self.conn,
            self.broker.client,
            sent=self.sent,
            expected=self.expected,
            acts=self.acts,
            effects=self.effects,
            groups=self.groups,
        )

    def run(self, sql: str, *args: Any) -> None:
        self.conn.execute(sql, args)  # type: ignore[call-overload]


def message(left: Left, seq: int, name: str, epoch: int) -> None:
    left.run(
        """INSERT INTO fleet.messages (thread_id, seq, message_id, kind, payload, payload_hash,
            status, queue, tenant, available_at, accepted_at, claimed_epoch, done_at)
        VALUES (%s, %s, %s, 'input', '{}', '', 'done', 'fleet', '', now(), now(), %s,
            now() + %s * interval '1 s')""",
        *(THREAD, seq, name, epoch, seq),
    )


def effect(left: Left, request: str, seq: int, epoch: int, at: float) -> None:
    left.run(
        """INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
            args_hash, attempts, epoch, first_started_at, started_at, finished_at)
        SELECT %s, %s, 1, %s, 'refund', 'resend', 'done', '', 1, %s, t, t, t
        FROM (SELECT now() + %s * interval '1 s' AS t) AS at""",
        *(THREAD, request, seq, epoch, at),
    )


def checkpoint(left: Left, name: str, parent: str | None, message_id: str, **values: Any) -> None:
    config: Any = {"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}
    if parent:
        config["configurable"]["checkpoint_id"] = parent
    stored = empty_checkpoint()
    stored["id"], stored["channel_values"] = name, values
    metadata: Any = {"step": 1, "run_id": run_id(message_id, THREAD)}
    PostgresSaver(left.conn).put(config, stored, metadata, {})


@pytest.fixture
def left(database: Database, broker: Broker) -> Iterator[Left]:
    with database.connect() as conn:
        made = Left(conn, broker)
        made.run(
            """INSERT INTO fleet.threads (thread_id, graph, key, status, epoch, created_at,
                updated_at)
            VALUES (%s, 'refund', 'T1', 'done', 6, now(), now())""",
            THREAD,
        )
        message(made, 1, "m1", 5)
        message(made, 2, "m2", 6)
        effect(made, "fr_1", 1, 5, 0.5)
        checkpoint(made, "1a", None, "m1")
        checkpoint(made, "1b", "1a", "m2", **STATE, **{"branch:to:end": None})
        yield made


def test_what_a_run_without_faults_has_left_is_in_order(left: Left) -> None:
    """And it says what it has looked at."""
    report = left.judge()
    assert report.ok, report
    assert report.looked_at == {"messages": 2, "threads": 1, "effects": 1, "processes": 0}


# Each fault by hand


def lost(left: Left) -> None:
    left.sent.append(Sent(THREAD, "m3"))


def unfinished(left: Left) -> None:
    left.run("UPDATE fleet.messages SET status = 'pending', done_at = NULL WHERE seq = 2")


def duplicate_message(left: Left) -> None:
    left.run("ALTER TABLE fleet.messages DROP CONSTRAINT messages_thread_id_message_id_key")
    message(left, 3, "m2", 6)
    left.run("UPDATE fleet.messages SET claimed_epoch = 7 WHERE seq = 3")
    left.run("UPDATE fleet.threads SET epoch = 7")


def unknown_message(left: Left) -> None:
    left.sent.pop()


def missing_effect(left: Left) -> None:
    left.effects["notice about T1"] = 1


def duplicate_effect(left: Left) -> None:
    effect(left, "fr_2", 1, 5, 0.6)
    left.acts.append(Act("refund of T1", "fr_2"))


def unexpected_effect(left: Left) -> None:
    effect(left, "fr_2", 1, 5, 0.6)
    left.acts.append(Act("refund of T2", "fr_2"))


def unrecorded_effect(left: Left) -> None:
    left.run("UPDATE fleet.effects SET state = 'intent', finished_at = NULL")


def forked(left: Left) -> None:
    checkpoint(left, "1c", "1a", "m2", **STATE)


def begun_twice(left: Left) -> None:
    checkpoint(left, "1c", None, "m2", **STATE)


def older_call(left: Left) -> None:
    effect(left, "fr_0", 2, 6, 0.4)
    left.run("UPDATE fleet.messages SET claimed_epoch = 5 WHERE seq = 1")


def written_after_the_end(left: Left) -> None:
    left.run("UPDATE fleet.effects SET finished_at = now() + interval '9 s'")


def newer_than_the_thread(left: Left) -> None:
    left.run("UPDATE fleet.threads SET epoch = 5")


def message_after_its_follower(left: Left) -> None:
    checkpoint(left, "1c", "1b", "m1", **STATE)


def wrong_status(left: Left) -> None:
    left.run("UPDATE fleet.threads SET status = 'failed'")


def missing_thread(left: Left) -> None:
    left.expected["refund:T9"] = Expected()


def other_value(left: Left) -> None:
    left.expected[THREAD] = Expected("done", {**STATE, "order_id": "T2"})


def missing_value(left: Left) -> None:
    left.expected[THREAD] = Expected("done", {**STATE, "outcome": ANY})


def waiting_for_nothing(left: Left) -> None:
    left.run("UPDATE fleet.threads SET status = 'waiting'")
    left.expected[THREAD] = replace(left.expected[THREAD], status="waiting")


def running_nothing(left: Left) -> None:
    left.run("UPDATE fleet.threads SET status = 'running'")
    left.expected[THREAD] = replace(left.expected[THREAD], status="running")


def question_of_a_thread_that_is_done(left: Left) -> None:
    left.run(
        """INSERT INTO fleet.questions (thread_id, question_id, generation, kind, payload,
            asked_epoch, asked_at) VALUES (%s, 'q', 1, 'text', '{}', 5, now())""",
        THREAD,
    )


def out_of_order(left: Left) -> None:
    left.run("UPDATE fleet.messages SET claimed_epoch = 4 WHERE seq = 2")


def ended_before(left: Left) -> None:
    left.run("UPDATE fleet.messages SET done_at = now() + interval '5 s' WHERE seq = 1")


def left_lock(left: Left) -> None:
    left.run("SELECT pg_advisory_lock(fleet.thread_lock(%s))", THREAD)


def queued(left: Left) -> None:
    left.broker.client.lpush("fleet", "{}")


def never_settled(left: Left) -> None:
    left.broker.client.hset("unacked", "tag", "{}")


FAULTS: list[tuple[str, Callable[[Left], None]]] = [
    ("lost", lost),
    ("unfinished", unfinished),
    ("duplicate_message", duplicate_message),
    ("unknown_message", unknown_message),
    ("missing_effect", missing_effect),
    ("duplicate_effect", duplicate_effect),
    ("unexpected_effect", unexpected_effect),
    ("unrecorded_effect", unrecorded_effect),
    ("forked", forked),
    ("forked", begun_twice),
    ("stale_write", older_call),
    ("stale_write", written_after_the_end),
    ("stale_write", newer_than_the_thread),
    ("stale_write", message_after_its_follower),
    ("wrong_status", wrong_status),
    ("wrong_status", missing_thread),
    ("state_differs", other_value),
    ("state_differs", missing_value),
    ("inconsistent", waiting_for_nothing),
    ("inconsistent", running_nothing),
    ("inconsistent", question_of_a_thread_that_is_done),
    ("out_of_order", out_of_order),
    ("out_of_order", ended_before),
    ("left_lock", left_lock),
    ("queue_not_empty", queued),
    ("queue_not_empty", never_settled),
]


@pytest.mark.parametrize(("kind", "fault"), FAULTS, ids=[fault.__name__ for _, fault in FAULTS])
def test_a_fault_is_reported_as_what_it_is(
    left: Left, kind: str, fault: Callable[[Left], None]
) -> None:
    """That kind and no other."""
    fault(left)
    report = left.judge()
    assert report.kinds() == {kind}, report


def test_a_transaction_left_open_is_reported(left: Left, database: Database) -> None:
    """By the name of its session."""
    with database.connect(application_name="forgetful") as other:
        other.execute("BEGIN")
        (found,) = left.judge().findings
    assert (found.kind, found.detail) == ("idle_in_transaction", "forgetful is idle in transaction")


def test_a_process_left_over_is_reported(left: Left) -> None:
    """One whose group's first process is gone, as a pool's is whose worker was killed."""
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=2).pid)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        orphan = int(first.stdout.readline())  # type: ignore[union-attr]
        left.groups = [os.getpid()]
        assert left.judge().ok
        left.groups.append(first.pid)
    try:
        report = eventually(lambda: (found := left.judge()).findings and found)
        assert report.kinds() == {"orphan_process"}, report
        assert str(orphan) in report.findings[0].detail
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_every_kind_has_a_fault_here() -> None:
    """A kind that nothing shows to be found may not be."""
    shown = {kind for kind, _ in FAULTS} | {"idle_in_transaction", "orphan_process"}
    assert shown == set(KINDS)


# What is legitimate


def test_a_message_that_nobody_vouched_for_may_be_missing(left: Left) -> None:
    """Its sender died before it was told."""
    left.sent.append(Sent(THREAD, "m3", accepted=False))
    assert left.judge().ok


def test_mail_behind_a_failed_message_may_wait(left: Left) -> None:
    """Where the thread is to have failed."""
    left.run("UPDATE fleet.messages SET status = 'dead' WHERE seq = 1")
    left.run("UPDATE fleet.messages SET status = 'pending', done_at = NULL WHERE seq = 2")
    left.run("UPDATE fleet.threads SET status = 'failed'")
    left.expected[THREAD] = replace(left.expected[THREAD], status="failed")
    assert left.judge().ok


def test_a_persons_word_goes_before_the_message_that_waits_for_it(left: Left) -> None:
    """A resolution is claimed before the message in doubt goes on."""
    left.run("UPDATE fleet.messages SET kind = 'resolve', claimed_epoch = 4 WHERE seq = 2")
    left.run("UPDATE fleet.messages SET done_at = now() WHERE seq = 2")
    assert left.judge().ok


def test_a_chain_whose_beginning_was_pruned_is_one(left: Left) -> None:
    """Retention takes the older checkpoints."""
    left.run("DELETE FROM checkpoints WHERE checkpoint_id = '1a'")
    assert left.judge().ok


# Its parts


def test_the_state_of_another_thread_is_told_apart_by_its_ids() -> None:
    """Ids change, volatile values may be anything, and they must be there."""
    state = {"order_id": "T1", "texts": ("for T1",), "refund_id": "re_1", "amount": 3}
    assert like(state, {"T1": "T2"}, ("refund_id",)) == {
        "order_id": "T2",
        "texts": ["for T2"],
        "refund_id": ANY,
        "amount": 3,
    }


def test_the_shops_books_are_read_by_order() -> None:
    """Refunds and notices, of the orders of this run."""
    books = {
        "refunds": [{"order_id": "T1", "request_id": "a"}, {"order_id": "T2", "request_id": "b"}],
        "notifications": [
            {"text": "Your refund of 3 for order T1 has been made.", "request_id": "c"},
            {"text": "Your refund for order T2 was rejected. Reason: no", "request_id": "d"},
        ],
    }
    assert shop_acts(books) == [
        *(Act("refund of T1", "a"), Act("refund of T2", "b")),
        *(Act("notice about T1", "c"), Act("notice about T2", "d")),
    ]
    assert about(shop_acts(books), ["T2"]) == [
        *(Act("refund of T2", "b"), Act("notice about T2", "d"))
    ]


def test_the_report_is_a_table_and_json(left: Left, tmp_path: Path) -> None:
    """For people and for machines."""
    left_lock(left)
    report = left.judge()
    report.write(tmp_path / "report.json")
    stored = json.loads((tmp_path / "report.json").read_text())
    assert stored["ok"] is False
    assert stored["findings"][0]["thread"] == THREAD
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.table())
    said = console.export_text()
    assert "left_lock" in said and THREAD in said
