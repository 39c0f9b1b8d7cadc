"""What operators do, on real Postgres and Redis; turns are played by claims of the test."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from graphs.ledger import Intent, Result
from infra.settings import get_settings
from producers import Fleet
from producers.errors import (
    AnswerRefused,
    EffectInDoubt,
    NothingToDo,
    ThreadBusy,
    UnknownGraph,
    UnknownThread,
)
from tests.harness import Broker, Database, eventually
from tests.integration.mailbox import INPUT, ask, settle
from tests.integration.test_claim import accept, claim_next, finish, take, take_over
from workers.claim import Claim
from workers.outcomes import Kind, Outcome, end
from workers.sweeper import Sweeper

A = "refund:A"


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


def submitted(fleet: Fleet, key: str = "A", *more: str) -> str:
    """A thread with its start and further input in the mailbox."""
    thread = fleet.submit("refund", key, INPUT, message_id="m1").thread_id
    for message in more:
        fleet.send(thread, INPUT, message_id=message)
    return thread


def ended(conn: Any, kind: Kind, **fields: Any) -> Claim:
    """The thread's next message, ended so."""
    held = Claim(conn, take(conn, "A"))
    finish(held, kind, **fields)
    return held


def mail(fleet: Fleet, thread: str = A) -> list[str]:
    """The status of each message, in order."""
    return [m.status for m in fleet.status(thread).messages]


def state(fleet: Fleet, thread: str = A) -> str:
    return fleet.status(thread).status


def intent(request_id: str = "r1", key: str | None = None) -> Intent:
    return Intent(request_id, "pay", "resend", "h", key)


def failed(request_id: str = "r1", key: str | None = None) -> Result:
    return Result(request_id, "failed", None, {"status": 422, "detail": "no"}, 1, key)


def dead_by_failure(conn: Any, key: str | None = None) -> None:
    """The first message died of an effect that failed for good."""
    held = Claim(conn, take(conn, "A"))
    held.intend(intent(key=key))
    held.note(failed(key=key))
    finish(held, Kind.DEAD, error="EffectFailed: pay: no")


def queued(broker: Broker) -> int:
    return int(broker.client.llen("fleet"))


# Cancel


def test_cancel_calls_off_what_nobody_works_on(fleet: Fleet, database: Database) -> None:
    """Mail is cancelled and the question closed, at once."""
    thread = submitted(fleet)
    ask(database, thread, "q1")
    fleet.submit("refund", "A", INPUT, message_id="m2", on_existing="restart")
    done = fleet.cancel(thread)
    assert (done.outcome, done.status) == ("cancelled", "cancelled")
    assert mail(fleet) == ["done", "cancelled"]
    assert fleet.status(thread).questions == []


def test_cancel_leaves_a_running_turn_to_stop_by_itself(fleet: Fleet, conn: Any) -> None:
    """Its next barrier says so; what follows its end calls everything off."""
    thread = submitted(fleet, "A", "m2")
    held = Claim(conn, take(conn, "A"))
    assert fleet.cancel(thread).outcome == "requested"
    assert fleet.status(thread).cancel_requested
    held.check()
    assert held.stop_requested
    finish(held, Kind.CANCELLED)
    assert fleet.cancel(thread).outcome == "cancelled"
    assert mail(fleet) == ["cancelled", "cancelled"]


def test_cancel_that_comes_too_late_changes_nothing(fleet: Fleet, conn: Any) -> None:
    """A thread that is done stays done, and later input is not called off."""
    thread = submitted(fleet)
    ended(conn, Kind.DONE)
    done = fleet.cancel(thread)
    assert (done.outcome, done.status) == ("finished", "done")
    assert not fleet.status(thread).cancel_requested


def test_cancel_that_a_finished_turn_did_not_see_is_forgotten(fleet: Fleet, conn: Any) -> None:
    """The turn ended before its next barrier: the thread is done."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    fleet.cancel(thread)
    finish(held)
    assert fleet.cancel(thread).outcome == "finished"
    assert state(fleet) == "done" and not fleet.status(thread).cancel_requested


def test_cancel_twice_says_the_same(fleet: Fleet) -> None:
    """It is safe to repeat."""
    thread = submitted(fleet)
    assert [fleet.cancel(thread).outcome for _ in range(2)] == ["cancelled", "cancelled"]


def test_cancel_names_effects_that_may_have_happened(fleet: Fleet, conn: Any) -> None:
    """The ledger keeps the intent."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(intent())
    finish(held, Kind.IN_DOUBT)
    done = fleet.cancel(thread)
    assert done.outcome == "cancelled" and [e.request_id for e in done.in_doubt] == ["r1"]
    assert [e.state for e in fleet.status(thread).effects] == ["intent"]


def test_a_call_that_a_running_turn_makes_is_not_in_doubt(fleet: Fleet, conn: Any) -> None:
    """The turn finishes it before it stops: nobody has to look it up."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(intent())
    done = fleet.cancel(thread)
    assert (done.outcome, done.in_doubt) == ("requested", [])
    finish(held, Kind.CANCELLED)
    assert [e.request_id for e in fleet.cancel(thread).in_doubt] == ["r1"]


def test_a_cancelled_thread_can_be_started_anew(fleet: Fleet, conn: Any) -> None:
    """The next generation is not called off."""
    thread = submitted(fleet)
    fleet.cancel(thread)
    fleet.restart(thread)
    assert take(conn, "A").result == "claimed"
    assert fleet.status(thread).generation == 2


# Status


def test_an_attempt_under_way_is_no_crash(fleet: Fleet, conn: Any, database: Database) -> None:
    """It counts as one when its claim is gone without an end."""

    def crashes() -> list[int]:
        return [m.crashes for m in fleet.status(thread).messages]

    thread = submitted(fleet)
    with database.session() as other:
        taken = take(other, "A")
        assert (taken.crashes, crashes()) == (1, [0])
    eventually(lambda: crashes() == [1])
    held = Claim(conn, take(conn, "A"))
    assert crashes() == [1]
    finish(held)
    assert crashes() == [1]


def test_messages_and_effects_are_of_a_generation(fleet: Fleet, conn: Any) -> None:
    """That in which they were worked on; a restart that waits is of the one it will begin."""

    def generations() -> list[int]:
        return [m.generation for m in fleet.status(thread).messages]

    thread = submitted(fleet, "A", "m2")
    ended(conn, Kind.DONE)
    fleet.restart(thread)
    fleet.restart(thread)
    assert generations() == [1, 1, 2, 2]
    held = Claim(conn, take(conn, "A"))
    held.intend(intent())
    assert generations() == [1, 1, 1, 2]
    assert [e.generation for e in fleet.status(thread).effects] == [2]
    finish(held)
    fleet.send(thread, INPUT)
    assert generations() == [1, 1, 1, 2, 2]


# Retry


def test_retry_makes_a_dead_message_due_with_its_counts_forgotten(
    fleet: Fleet, conn: Any, broker: Broker
) -> None:
    """And wakes a worker; later mail follows it in order."""
    thread = submitted(fleet, "A", "m2")
    ended(conn, Kind.DEAD, error="no")
    broker.client.flushdb()
    done = fleet.retry(thread)
    assert (done.message_id, done.seq, done.published, done.renewed) == ("m1", 1, True, [])
    assert queued(broker) == 1
    assert mail(fleet) == ["pending", "pending"] and state(fleet) == "idle"
    claimed = take(conn, "A")
    assert (claimed.message_id, claimed.crashes, claimed.failures) == ("m1", 1, 0)


def test_retry_does_not_wait_out_the_backoff(fleet: Fleet, conn: Any) -> None:
    """A message that failed for the moment is due now."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.finish(
        {"seq": 1, "message": "pending", "thread": "idle", "error": "x", "delay": 300.0}
        | {"failed": True},
        None,
    )
    assert take(conn, "A").result == "later"
    fleet.retry(thread)
    assert take(conn, "A").result == "claimed"


@pytest.mark.parametrize("kind", [None, Kind.DONE])
def test_retry_refuses_what_is_not_dead(kind: Kind | None, fleet: Fleet, conn: Any) -> None:
    """New or finished: nothing is written."""
    thread = submitted(fleet)
    if kind is not None:
        ended(conn, kind)
    before = fleet.status(thread)
    for new_request in (False, True):
        with pytest.raises(NothingToDo):
            fleet.retry(thread, new_request=new_request)
    assert fleet.status(thread) == before


def test_retry_refuses_an_effect_in_doubt(fleet: Fleet, conn: Any) -> None:
    """A person says first whether it happened; the error names the request."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(intent())
    finish(held, Kind.IN_DOUBT)
    with pytest.raises(EffectInDoubt) as refused:
        fleet.retry(thread)
    assert refused.value.in_doubt == ["r1"] and "fleet resolve refund:A r1" in str(refused.value)


def test_nothing_is_done_to_a_thread_in_a_turn(fleet: Fleet, conn: Any) -> None:
    """Retry and drop refuse while somebody writes it."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    for work in (fleet.retry, fleet.drop):
        with pytest.raises(ThreadBusy):
            work(thread)
    finish(held)


def test_new_request_gives_failed_calls_another_id(fleet: Fleet, conn: Any) -> None:
    """The failed row stays and names the id that takes its place."""
    thread = submitted(fleet)
    dead_by_failure(conn)
    done = fleet.retry(thread, new_request=True)
    (renewed,) = done.renewed
    assert renewed.request_id == "r1" and renewed.renewed_as not in (None, "r1")
    (effect,) = fleet.status(thread).effects
    assert effect.state == "failed" and effect.error is not None
    assert effect.error["renewed_as"] == renewed.renewed_as


def test_a_renewed_key_is_kept_for_as_long_as_what_it_leads_to(
    fleet: Fleet, conn: Any, database: Database
) -> None:
    """Without it the effect would be called once more."""
    thread = submitted(fleet)
    dead_by_failure(conn, key="pay:1")
    (renewed,) = fleet.retry(thread, new_request=True).renewed
    held = Claim(conn, take(conn, "A"))
    key = f"pay:1#{renewed.renewed_as}"
    held.intend(Intent(str(renewed.renewed_as), "pay", "resend", "h", key))
    held.note(Result(str(renewed.renewed_as), "done", ("null", b""), None, 1, key))
    finish(held)
    conn.execute("SELECT fleet.move_clock('10 days')")
    left = []
    for _ in range(2):
        conn.execute("SELECT fleet.prune_keyed_effects(5, '', 100)")
        left.append(database.fetch("SELECT effect_key FROM fleet.keyed_effects"))
    assert left == [[("pay:1",)], []]


def test_new_request_needs_a_recorded_failure(fleet: Fleet, conn: Any) -> None:
    """Without one the message stays dead."""
    thread = submitted(fleet)
    ended(conn, Kind.DEAD, error="no")
    with pytest.raises(NothingToDo) as refused:
        fleet.retry(thread, new_request=True)
    assert "without --new-request" in refused.value.hint and mail(fleet) == ["dead"]


def test_new_request_is_refused_while_an_effect_is_in_doubt(fleet: Fleet, conn: Any) -> None:
    """Of a dead turn with one failed call and one that may have happened."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(intent("r2"))
    held.intend(intent("r1"))
    held.note(failed("r1"))
    finish(held, Kind.DEAD, error="no")
    with pytest.raises(EffectInDoubt):
        fleet.retry(thread, new_request=True)
    assert mail(fleet) == ["dead"]
    assert fleet.retry(thread).seq == 1


# Drop


def test_drop_lets_later_mail_go_on(fleet: Fleet, conn: Any, broker: Broker) -> None:
    """The dead message is dropped, the next is due, and a worker woken."""
    thread = submitted(fleet, "A", "m2")
    ended(conn, Kind.DEAD, error="no")
    assert take(conn, "A").result == "blocked"
    broker.client.flushdb()
    done = fleet.drop(thread)
    assert (done.message_id, done.status) == ("m1", "idle")
    assert mail(fleet) == ["dropped", "pending"] and queued(broker) == 1
    assert take(conn, "A").message_id == "m2"


@pytest.mark.parametrize(("messages", "status"), [((), "cancelled"), (("m2",), "done")])
def test_a_thread_after_its_last_mail_is_dropped(
    messages: tuple[str, ...], status: str, fleet: Fleet, conn: Any
) -> None:
    """A start that is dropped leaves nothing to come; a chat stands where it was."""
    thread = submitted(fleet, "A", *messages)
    for _ in messages:
        ended(conn, Kind.DONE)
    ended(conn, Kind.DEAD, error="no")
    assert fleet.drop(thread).status == status
    assert fleet.status(thread).last_error is None


def test_drop_names_the_effect_in_doubt(fleet: Fleet, conn: Any) -> None:
    """It may have happened, and nobody will look at it any more."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(intent())
    finish(held, Kind.IN_DOUBT)
    assert [e.request_id for e in fleet.drop(thread).in_doubt] == ["r1"]


def test_drop_refuses_what_is_not_quarantined(fleet: Fleet) -> None:
    """Mail that is due stays."""
    thread = submitted(fleet)
    with pytest.raises(NothingToDo):
        fleet.drop(thread)
    assert mail(fleet) == ["pending"]


# Restart


def test_restart_takes_the_input_of_the_last_start(fleet: Fleet, database: Database) -> None:
    """Or another one; the same message_id counts once."""
    thread = submitted(fleet)
    fleet.restart(thread, message_id="again")
    assert fleet.restart(thread, message_id="again").outcome == "duplicate"
    fleet.restart(thread, {"user_id": "u_43"})
    found = database.fetch("SELECT payload->>'user_id', restarts FROM fleet.messages ORDER BY seq")
    assert found == [("u_42", False), ("u_42", True), ("u_43", True)]


def test_restart_takes_the_context_and_config_of_the_last_start(
    fleet: Fleet, database: Database
) -> None:
    """They are part of how it was started."""
    run: dict[str, Any] = {"context": {"user": "ann"}, "config": {"tags": ["vip"]}}
    thread = fleet.submit("refund", "A", INPUT, **run).thread_id
    fleet.restart(thread)
    first, again = database.fetch("SELECT payload FROM fleet.messages ORDER BY seq")
    assert first == again and first[0]["__run__"] == run


def in_doubt(fleet: Fleet, conn: Any, key: str | None = None) -> str:
    """A thread of whose effect nobody knows whether it happened."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(intent(key=key))
    finish(held, Kind.IN_DOUBT)
    return thread


Anew = Callable[[Fleet, bool], Any]
ANEW: dict[str, Anew] = {
    "restart": lambda fleet, force: fleet.restart(A, force=force),
    "submit": lambda fleet, force: fleet.submit(
        "refund", "A", INPUT, on_existing="restart", force=force
    ),
    "submit_many": lambda fleet, force: fleet.submit_many(
        [{"graph": "refund", "key": "A", "input": INPUT, "on_existing": "restart", "force": force}]
    ),
    "check_many": lambda fleet, force: fleet.check_many(
        [{"graph": "refund", "key": "A", "input": INPUT, "on_existing": "restart", "force": force}]
    ),
}


@pytest.mark.parametrize("anew", ANEW.values(), ids=ANEW)
def test_what_may_have_happened_is_not_started_anew(fleet: Fleet, conn: Any, anew: Anew) -> None:
    """By whichever door, and nothing is written; with force it is."""
    thread = in_doubt(fleet, conn)
    before = fleet.status(thread)
    with pytest.raises(EffectInDoubt, match=r"pay \(r1\) may have happened") as refused:
        anew(fleet, False)
    assert refused.value.in_doubt == ["r1"] and "fleet resolve" in refused.value.hint
    assert fleet.status(thread) == before
    anew(fleet, True)


def test_an_effect_stays_in_doubt_when_its_thread_is_called_off(fleet: Fleet, conn: Any) -> None:
    """A cancel does not make it unhappen."""
    thread = in_doubt(fleet, conn)
    fleet.cancel(thread)
    with pytest.raises(EffectInDoubt):
        fleet.restart(thread)
    assert fleet.restart(thread, force=True).outcome == "accepted"
    take(conn, "A")
    # What the run before left is none of this one's.
    assert fleet.restart(thread).outcome == "accepted"


def test_what_is_done_once_per_key_holds_up_no_restart(fleet: Fleet, conn: Any) -> None:
    """The run anew meets the record of a keyed effect."""
    assert fleet.restart(in_doubt(fleet, conn, key="pay:1")).outcome == "accepted"


def test_what_a_person_did_by_hand_is_not_started_anew(fleet: Fleet, conn: Any) -> None:
    """The run anew would do the node's work once more."""
    thread = submitted(fleet)
    ended(conn, Kind.DEAD, error="no")
    fleet.amend(thread, "process_refund", {})
    ended(conn, Kind.DONE)
    with pytest.raises(EffectInDoubt, match="process_refund was done by hand") as refused:
        fleet.restart(thread)
    assert (refused.value.in_doubt, refused.value.amended) == ([], ["process_refund"])
    assert fleet.restart(thread, force=True).outcome == "accepted"
    ended(conn, Kind.DONE)
    assert fleet.restart(thread).outcome == "accepted"


def test_force_restarts_nothing_by_itself(fleet: Fleet) -> None:
    """It goes with on_existing="restart" only."""
    submitted(fleet)
    again = fleet.submit("refund", "A", INPUT, message_id="m2", force=True)
    assert again.outcome == "existing"


def test_restart_without_an_input_that_is_kept_asks_for_one(
    fleet: Fleet, database: Database
) -> None:
    """Old messages of finished threads are removed."""
    thread = submitted(fleet)
    settle(database, thread, "done")
    database.fetch("DELETE FROM fleet.messages")
    with pytest.raises(NothingToDo) as refused:
        fleet.restart(thread)
    assert "--input" in refused.value.hint
    assert fleet.restart(thread, INPUT).outcome == "accepted"


def test_every_operation_names_an_unknown_thread(fleet: Fleet) -> None:
    """UnknownThread, and nothing is made."""
    for work in (fleet.cancel, fleet.retry, fleet.drop, fleet.restart):
        with pytest.raises(UnknownThread):
            work(A)
    assert fleet.threads() == []


def test_an_answer_that_is_being_accepted_is_called_off_too(
    fleet: Fleet, database: Database, conn: Any
) -> None:
    """A cancel that says so has called off all that was accepted, and none comes after it."""
    thread = submitted(fleet)
    ask(database, thread, "q1")
    ask(database, thread, "q2")
    with database.session() as producer, ThreadPoolExecutor(1) as pool:
        answer = {"kind": "answer", "question_id": "q1", "payload": {"value": "approved"}}
        with producer.transaction():
            assert accept(producer, "A", "m2", **answer)["outcome"] == "accepted"
            cancelled = pool.submit(fleet.cancel, thread)
            eventually(
                lambda: database.value(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                )
            )
        assert cancelled.result(10).outcome == "cancelled"
    found = "SELECT DISTINCT status FROM fleet.messages WHERE kind = 'answer'"
    assert database.fetch(found) == [("cancelled",)]
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"


def test_nothing_is_answered_once_a_cancel_is_asked_for(
    fleet: Fleet, database: Database, conn: Any
) -> None:
    """The turn that it waits for would call the answer off."""
    thread = submitted(fleet)
    ask(database, thread, "q1")
    database.fetch("UPDATE fleet.threads SET cancel_requested = true")
    with pytest.raises(AnswerRefused):
        fleet.answer(thread, "q1", "approved")


@pytest.mark.parametrize("forced", [False, True])
def test_a_restart_that_was_accepted_before_the_doubt_waits_for_it(
    fleet: Fleet, database: Database, forced: bool
) -> None:
    """A worker that dies with an effect under way: its turn goes on first, unless it was forced."""
    submitted(fleet)
    with database.session() as dying:
        held = Claim(dying, take(dying, "A"))
        fleet.submit("refund", "A", INPUT, message_id="m2", on_existing="restart", force=forced)
        held.intend(intent())
    with database.session() as conn:
        held = Claim(conn, take_over(conn, "A"))
        assert held.claimed.message_id == ("m2" if forced else "m1")
        assert held.claimed.generation == (2 if forced else 1)
        held.note(Result("r1", "done", ("null", b""), None, 1, None))
        finish(held, Kind.DONE)
        if not forced:
            assert take(conn, "A").generation == 2


def test_a_restart_keeps_nobody_busy_while_it_waits(fleet: Fleet, conn: Any) -> None:
    """A person's word comes first; until then no wake-up is sent for it."""
    submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    fleet.submit("refund", "A", INPUT, message_id="m2", on_existing="restart")
    held.intend(intent())
    finish(held, Kind.IN_DOUBT)
    assert take(conn, "A").result == "blocked"
    assert conn.execute("SELECT count(*) FROM fleet.heads").fetchone() == (0,)
    fleet.resolve(A, "r1", happened=False)
    assert take(conn, "A").kind == "resolve"


# Pause


def test_pause_holds_mail_and_resume_lets_it_go(
    fleet: Fleet, conn: Any, broker: Broker, database: Database
) -> None:
    """Nobody takes it meanwhile; resuming wakes somebody."""
    submitted(fleet)
    hold = fleet.pause("refund")
    assert (hold.paused, hold.waiting, hold.running) == (True, 1, 0)
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"
    broker.client.flushdb()
    hold = fleet.resume("refund")
    assert (hold.paused, hold.waiting) == (False, 1)
    assert queued(broker) == 1
    assert claim_next(conn, "fleet", "", "me", 3).result == "claimed"


def test_another_graph_goes_on(fleet: Fleet, conn: Any, database: Database) -> None:
    """Only the paused graph's mail is held."""
    database.fetch("INSERT INTO fleet.graphs (graph, registered_at) VALUES ('other', now())")
    submitted(fleet)
    fleet.submit("other", "B", {})
    fleet.pause("refund")
    assert claim_next(conn, "fleet", "", "me", 3).thread_id == "other:B"
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"


def test_a_quarantined_message_is_held_when_it_is_retried(fleet: Fleet, conn: Any) -> None:
    """Its graph is paused: it is due, and nobody takes it."""
    thread = submitted(fleet)
    ended(conn, Kind.DEAD, error="no")
    fleet.pause("refund")
    fleet.retry(thread)
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"
    fleet.resume("refund")
    assert claim_next(conn, "fleet", "", "me", 3).result == "claimed"


def test_pausing_twice_is_the_same(fleet: Fleet, database: Database) -> None:
    """And so is resuming what is not paused."""
    submitted(fleet)
    queues = "SELECT queue FROM fleet.messages"
    for _ in range(2):
        assert fleet.pause("refund").waiting == 1
        assert database.fetch(queues) == [("paused:fleet",)]
    for _ in range(2):
        assert fleet.resume("refund").waiting == 1
        assert database.fetch(queues) == [("fleet",)]


def test_a_paused_thread_can_be_cancelled(fleet: Fleet) -> None:
    """Held mail is called off as any other."""
    thread = submitted(fleet)
    fleet.pause("refund")
    assert fleet.cancel(thread).outcome == "cancelled"


def test_nobody_claims_a_paused_thread_by_name(fleet: Fleet, conn: Any, broker: Broker) -> None:
    """Nor is anybody woken for mail that comes meanwhile."""
    submitted(fleet)
    fleet.pause("refund")
    broker.client.flushdb()
    receipt = fleet.send(A, INPUT)
    assert receipt.paused and broker.client.keys("*") == []
    assert take(conn, "A").result == "paused"


def test_a_person_s_word_is_taken_in_a_paused_graph(
    fleet: Fleet, conn: Any, database: Database
) -> None:
    """A resolution runs; the message that goes on because of it waits for the resume."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    held.intend(Intent("r1", "pay", "park", "h", None))
    held.finish(end(Outcome(Kind.IN_DOUBT, "?"), 1, 0.0), None)
    fleet.pause("refund")
    fleet.resolve(thread, "r1", True, {"refund_id": "R1"})
    taken = claim_next(conn, "fleet", "", "me", 3)
    assert (taken.result, taken.kind) == ("claimed", "resolve")
    Claim(conn, taken).finish(end(Outcome(Kind.DONE, resumes=True), taken.seq, 0.0), None)
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"
    fleet.resume("refund")
    assert claim_next(conn, "fleet", "", "me", 3).kind == "start"


# What the sweep does about it


@pytest.fixture
def sweeper(settings_env: None) -> Iterator[Sweeper]:
    made = Sweeper(get_settings(), "w@test", ["fleet"], 2, "prefork")
    yield made
    made.session.drop()


def test_the_sweep_leaves_paused_mail_alone(
    fleet: Fleet, sweeper: Sweeper, database: Database, conn: Any, broker: Broker
) -> None:
    """Overdue or an orphan: it is woken for when the graph is resumed."""
    submitted(fleet, "A")
    submitted(fleet, "B")
    with database.session() as victim:
        take(victim, "A")
        fleet.pause("refund")
    eventually(lambda: free(conn, A))
    conn.execute("SELECT fleet.move_clock('3 s')")
    broker.client.flushdb()
    found = sweeper.tick()
    assert (found["orphans"], found["overdue"], found["due"]) == (0, 0, 0)
    assert broker.client.keys("*") == []
    conn.execute("UPDATE fleet.graphs SET paused = false")
    conn.execute("SELECT fleet.sort_paused()")
    found = sweeper.tick()
    assert (found["orphans"], found["overdue"]) == (1, 1)
    assert queued(broker) == 2


def free(conn: Any, thread: str) -> bool:
    """Whether nobody holds the thread's lock; it is let go of again."""
    sql = "SELECT pg_try_advisory_xact_lock(fleet.thread_lock(%s))"
    return bool(conn.execute(sql, (thread,)).fetchone()[0])


@pytest.mark.parametrize("paused", [True, False])
def test_mail_of_a_transaction_older_than_the_change_is_sorted_by_the_sweep(
    paused: bool, fleet: Fleet, sweeper: Sweeper, database: Database
) -> None:
    """It was accepted by what the graph was before."""
    if not paused:
        fleet.pause("refund")
    with psycopg.connect(database.url) as producer:
        fleet.submit("refund", "A", INPUT, connection=producer)
        (fleet.pause if paused else fleet.resume)("refund")
    queue = "SELECT queue FROM fleet.messages"
    assert database.value(queue) == ("fleet" if paused else "paused:fleet")
    sweeper.tick()
    assert database.value(queue) == ("paused:fleet" if paused else "fleet")


@pytest.mark.parametrize("kind", [Kind.WAITING, Kind.RETRY, Kind.DEAD])
def test_a_cancel_that_a_turn_did_not_see_is_carried_out_by_the_sweep(
    kind: Kind, fleet: Fleet, sweeper: Sweeper, conn: Any
) -> None:
    """The turn ended without a barrier after it."""
    thread = submitted(fleet)
    held = Claim(conn, take(conn, "A"))
    fleet.cancel(thread)
    assert sweeper.tick()["cancelled"] == 0
    finish(held, kind)
    assert sweeper.tick()["cancelled"] == 1
    assert state(fleet) == "cancelled" and mail(fleet)[0] in ("done", "cancelled")
    assert not fleet.status(thread).cancel_requested


def test_a_worker_does_as_drain_says_within_a_second(
    settings_env: None, fleet: Fleet, database: Database
) -> None:
    """Asked once, told once; and again when it is taken back."""
    told: list[bool] = []
    sweepers = [
        Sweeper(get_settings(), f"{n}@test", ["fleet"], 2, "prefork", hold=told.append)
        for n in "12"
    ]
    for made in sweepers:
        made.start()
    try:
        eventually(lambda: len(fleet.workers()) == 2)
        for name in ("1@test", "2@test"):
            for undo in (False, True):
                told.clear()
                began = time.monotonic()
                fleet.drain(name, undo=undo)
                eventually(lambda: told == [not undo], 2)  # noqa: B023
                assert time.monotonic() - began < 1
                eventually(
                    lambda: sum(w.draining for w in fleet.workers()) == (not undo)  # noqa: B023
                )
    finally:
        for made in sweepers:
            made.stop()


def test_pausing_an_unknown_graph_names_the_known(fleet: Fleet) -> None:
    """UnknownGraph, both ways."""
    for work in (fleet.pause, fleet.resume):
        with pytest.raises(UnknownGraph) as refused:
            work("refunds")
        assert refused.value.known == ["booking", "refund"]
