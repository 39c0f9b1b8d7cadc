"""The sweep against real servers: who is woken, and who is not."""

import json
import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from infra.settings import get_settings
from producers.wakeup import NO_LIMIT, Wake, push
from tests.harness import Broker, Database, eventually
from tests.integration.mailbox import ask
from tests.integration.test_claim import accept, claim_next, finish, take, take_over
from workers.calls import Calls
from workers.claim import Claim
from workers.sweeper import Sweeper


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


@pytest.fixture
def sweeper(settings_env: None) -> Iterator[Sweeper]:
    made = Sweeper(get_settings(), "w@test", ["fleet"], 2, "prefork")
    yield made
    made.session.drop()


def woken(broker: Broker) -> list[str]:
    """Threads named by the wake-ups in the queue, oldest first."""
    raw: Any = broker.client.lrange("fleet", 0, -1)
    return [json.loads(m)["headers"]["argsrepr"][2:-3] for m in reversed(raw)]


def test_an_orphan_is_woken_at_once(
    sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """A claimed message whose lock nobody holds; one whose holder lives is left alone."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1")
    take(conn, "B")
    with database.session() as victim:
        take(victim, "A")
        assert sweeper.tick()["orphans"] == 0
    assert eventually(lambda: sweeper.tick()["orphans"]) == 1
    assert woken(broker) == ["refund:A"]


def test_one_orphan_is_not_woken_at_every_tick(
    sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """The interval grows, so that a dead fleet's queue does not fill up."""
    accept(conn, "A", "m1")
    with database.session() as victim:
        take(victim, "A")
    eventually(lambda: sweeper.tick()["orphans"])
    for _ in range(5):
        sweeper.tick()
    assert woken(broker) == ["refund:A"]


def test_an_orphan_is_woken_again_while_the_queue_holds_no_more_than_twice_its_due(
    sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """Where workers die by the dozen, the first wake-up may lie in the queue for long."""
    sweeper.waker.orphaned = Calls(0.0)
    accept(conn, "A", "m1")
    with database.session() as victim:
        take(victim, "A")
    eventually(lambda: sweeper.tick()["orphans"])
    push(broker.client, [Wake("fleet", "refund:B", NO_LIMIT)] * 31)
    for _ in range(3):
        sweeper.tick()
    assert woken(broker).count("refund:A") == 1
    broker.client.ltrim("fleet", 0, 19)
    sweeper.tick()
    assert woken(broker).count("refund:A") == 1
    broker.client.delete("fleet")
    sweeper.tick()
    assert woken(broker) == ["refund:A"]


def test_who_does_not_lead_wakes_for_its_own_orphans_only(
    settings_env: None, database: Database, conn: Any, broker: Broker
) -> None:
    """The leader sees to the others: two wake-ups for each would be one too many."""
    accept(conn, "A", "m1")
    with database.session() as victim:
        take(victim, "A")
    candidate = Sweeper(get_settings(), "other@test", ["fleet"], 2, "prefork")
    assert eventually(lambda: candidate.session.run("orphans", {"owner": ""}))
    assert candidate.waker.wake_orphans("other@test:") == 0
    conn.execute("UPDATE fleet.threads SET owner = 'other@test:1:1'")
    assert candidate.waker.wake_orphans("other@test:") == 1
    assert woken(broker) == ["refund:A"]
    candidate.session.drop()


def test_a_look_at_its_own_orphans_makes_it_forget_no_other(
    sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """A lead that is lost and won again wakes nobody once more."""
    accept(conn, "A", "m1")
    with database.session() as victim:
        take(victim, "A")
    eventually(lambda: sweeper.tick()["orphans"])
    assert sweeper.waker.wake_orphans("w@test:") == 0
    assert sweeper.tick()["orphans"] == 1
    assert woken(broker) == ["refund:A"]


def test_mail_that_nobody_was_woken_for_is(sweeper: Sweeper, conn: Any, broker: Broker) -> None:
    """Overdue mail is woken; mail of this moment, and mail behind a dead one, is not."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1")
    accept(conn, "B", "m2", kind="input")
    finish(Claim(conn, take(conn, "B")))
    assert sweeper.tick()["overdue"] == 0
    conn.execute("SELECT fleet.move_clock('3 s')")
    conn.execute(
        "UPDATE fleet.messages SET status = 'dead' WHERE message_id = 'm1' AND seq = 1 "
        "AND thread_id = 'refund:B'"
    )
    assert sweeper.tick()["overdue"] == 1
    assert woken(broker) == ["refund:A"]


def test_a_backlog_is_not_queued_twice(sweeper: Sweeper, conn: Any, broker: Broker) -> None:
    """The queue holds no more wake-ups than the slots can use, however long the backlog."""
    for n in range(60):
        accept(conn, f"A{n}", "m1")
    conn.execute("SELECT fleet.move_clock('3 s')")
    for _ in range(3):
        sweeper.tick()
    assert len(woken(broker)) == 16


def test_an_emptied_broker_is_refilled(sweeper: Sweeper, conn: Any, broker: Broker) -> None:
    """After FLUSHALL the mail is woken again at its next interval."""
    accept(conn, "A", "m1")
    conn.execute("SELECT fleet.move_clock('3 s')")
    sweeper.tick()
    broker.client.flushdb()
    eventually(lambda: sweeper.tick() and woken(broker), timeout=6, interval=0.2)
    assert woken(broker) == ["refund:A"]


def test_a_hung_turn_loses_its_backend(sweeper: Sweeper, database: Database, conn: Any) -> None:
    """Without progress for the turn's timeout, lock and writes end with the session."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1")
    with database.session() as hung, database.session() as busy:
        take(hung, "A")
        conn.execute("SELECT fleet.move_clock('601 s')")
        Claim(busy, take(busy, "B")).check()
        assert sweeper.tick()["stuck"] == 1
        with pytest.raises(psycopg.OperationalError):
            hung.execute("SELECT 1")
        busy.execute("SELECT 1")
    assert eventually(lambda: sweeper.tick()["orphans"])


def test_one_leader_at_a_time(settings_env: None) -> None:
    """The second candidate leads within a second of the first one's end."""
    one, two = (Sweeper(get_settings(), f"{n}@test", ["fleet"], 2, "prefork") for n in "12")
    one.start()
    eventually(lambda: one.session.leads)
    two.start()
    try:
        eventually(lambda: two.session._conn is not None)
        assert not two.session.leads
        one.stop()
        assert eventually(lambda: two.session.leads, timeout=2)
    finally:
        two.stop()


def test_workers_announce_themselves_and_say_goodbye(
    settings_env: None, database: Database
) -> None:
    """fleet.workers has a row for each living worker, which bounds the wake-ups."""
    sweeper = Sweeper(get_settings(), "w@test", ["fleet"], 5, "prefork")
    sweeper.start()
    rows = "SELECT slots, wakeups, draining FROM fleet.workers"
    eventually(lambda: database.fetch(rows) == [(5, 20, False)])
    assert database.value("SELECT fleet.wake_limit('fleet')") == 20
    sweeper.draining()
    eventually(lambda: database.fetch(rows) == [(5, 20, True)])
    sweeper.stop()
    assert database.fetch(rows) == []


def test_a_forked_child_lets_go_of_the_lead(settings_env: None, database: Database) -> None:
    """A child that outlives its parent does not keep the parent's lock: its copy of the
    socket is cut off without a word to the server."""
    sweeper = Sweeper(get_settings(), "w@test", ["fleet"], 2, "prefork")
    sweeper.start()
    eventually(lambda: sweeper.session.leads)
    assert sweeper.session._conn is not None
    pid = os.fork()
    if pid == 0:
        same = os.fstat(sweeper.session._conn.fileno()).st_rdev == os.stat(os.devnull).st_rdev
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sweeper.session.run("lead") == [(True,)]
    sweeper.stop()


def test_a_thread_that_loses_its_next_worker_too_is_woken_at_once(
    sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """The growing interval is one claim's, not the thread's."""
    accept(conn, "A", "m1")
    for _ in range(2):
        with database.session() as victim:
            take_over(victim, "A")
        eventually(lambda: sweeper.tick()["orphans"])
    assert woken(broker) == ["refund:A", "refund:A"]


def test_a_question_that_nobody_answered_in_time_expires(
    sweeper: Sweeper, database: Database, conn: Any
) -> None:
    """Its thread says what to do, and takes new input."""
    accept(conn, "A", "m1")
    ask(database, "refund:A", "q1", expires_in=30)
    ask(database, "refund:A", "q2", expires_in=300)
    sweeper.tick()
    conn.execute("SELECT fleet.move_clock('60 s')")
    sweeper.tick()
    found = "SELECT question_id, status FROM fleet.questions ORDER BY 1"
    assert database.fetch(found) == [("q1", "expired"), ("q2", "open")]
    assert database.value("SELECT status FROM fleet.threads") == "waiting"
    conn.execute("SELECT fleet.move_clock('600 s')")
    sweeper.tick()
    assert database.value("SELECT status FROM fleet.threads") == "failed"
    assert "restart" in database.value("SELECT last_error FROM fleet.threads")
    assert accept(conn, "A", "m2", kind="input")["outcome"] == "accepted"


def test_a_restart_is_woken_although_a_dead_message_stands_before_it(
    sweeper: Sweeper, conn: Any, broker: Broker
) -> None:
    """It will drop what stands before it; nobody else would start it."""
    accept(conn, "A", "m1")
    conn.execute("UPDATE fleet.messages SET status = 'dead'")
    accept(conn, "A", "m2", on_existing="restart")
    conn.execute("SELECT fleet.move_clock('3 s')")
    assert sweeper.tick()["overdue"] == 1
    assert woken(broker) == ["refund:A"]
    assert claim_next(conn, "fleet", "", "me", 3).seq == 2
