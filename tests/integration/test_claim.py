"""Claim, barrier and end against real Postgres: one writer, one transaction, in order."""

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from graphs.control import Cancelled, ClaimLost
from graphs.ledger import Intent, Result
from tests.harness import Database, eventually
from workers.claim import Claim, StateUnstorable
from workers.claimed import Claimed, claim, claim_next
from workers.outcomes import Kind, Outcome, end

NEXT = {"owner": "me", "max_crashes": 3, "queue": "fleet", "tenant": ""}


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


@pytest.fixture
def other(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


def accept(conn: psycopg.Connection[Any], key: str, message: str, **fields: Any) -> dict[str, Any]:
    body = {
        "graph": "refund",
        "key": key,
        "message_id": message,
        "kind": "start",
        "payload": {},
        "payload_hash": message,
        "on_existing": "use_existing",
    } | fields
    row = conn.execute("SELECT fleet.accept(%s::jsonb)", (json.dumps(body),)).fetchone()
    assert row is not None
    reply: dict[str, Any] = row[0]
    return reply


def take(conn: psycopg.Connection[Any], key: str, limit: int = 3) -> Claimed:
    return claim(conn, f"refund:{key}", "me", limit)


def take_over(conn: psycopg.Connection[Any], key: str) -> Claimed:
    """Claim once the server has noticed that the session before is gone."""

    def free() -> Claimed | None:
        found = take(conn, key)
        return None if found.result == "busy" else found

    found = eventually(free)
    assert found is not None
    return found


def finish(held: Claim, kind: Kind = Kind.DONE, **fields: Any) -> Claimed:
    following = fields.pop("following", None)
    return held.finish(end(Outcome(kind, **fields), held.claimed.seq, 0.0), following)


def status(conn: psycopg.Connection[Any], key: str) -> list[tuple[int, str, int]]:
    return conn.execute(
        "SELECT seq, status, crashes FROM fleet.messages WHERE thread_id = %s ORDER BY seq",
        (f"refund:{key}",),
    ).fetchall()


def test_a_second_claim_finds_the_thread_busy(conn: Any, other: Any) -> None:
    """One session at a time holds a thread; the other is told at once."""
    accept(conn, "A", "m1")
    assert take(conn, "A").result == "claimed"
    assert take(other, "A").result == "busy"


def test_a_claim_dies_with_its_session(database: Database, other: Any) -> None:
    """The lock goes with the connection, and the next claim has a higher epoch."""
    with database.session() as first:
        accept(first, "A", "m1")
        before = take(first, "A")
    again = take_over(other, "A")
    assert (again.result, again.crashes) == ("claimed", 2)
    assert again.epoch > before.epoch


def test_an_older_epoch_writes_nothing(database: Database, conn: Any) -> None:
    """A zombie that still has its connection is fenced off at its next barrier."""
    accept(conn, "A", "m1")
    zombie = Claim(conn, take(conn, "A"))
    conn.execute("SELECT pg_advisory_unlock_all()")
    with database.session() as second:
        take(second, "A")
        zombie.note(Result("r1", "done", None, None, 1, None))
        with pytest.raises(ClaimLost):
            zombie.flush()
        with pytest.raises(ClaimLost):
            finish(zombie)
    assert zombie.lost


def test_a_closed_claim_refuses_everything(conn: Any) -> None:
    """What a left-over thread of an ended turn tries is refused."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    finish(held)
    intent = Intent("r1", "pay", "resend", "h", None)
    for attempt in (held.flush, held.check, lambda: held.intend(intent)):
        with pytest.raises(ClaimLost):
            attempt()
    assert conn.execute("SELECT count(*) FROM fleet.effects").fetchone() == (0,)


def test_an_intent_is_committed_before_it_returns(conn: Any, other: Any) -> None:
    """Another session sees the intent as soon as intend() is back, and the result after flush."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    recorded = held.intend(Intent("r1", "pay", "resend", "h", None))
    assert (recorded.state, recorded.attempts) == ("new", 1)
    assert other.execute("SELECT state FROM fleet.effects").fetchone() == ("intent",)
    held.note(Result("r1", "done", ("msgpack", b"x"), None, 1, None))
    held.flush()
    assert other.execute("SELECT state, result FROM fleet.effects").fetchone() == ("done", b"x")
    replay = held.intend(Intent("r1", "pay", "resend", "h", None))
    assert (replay.state, replay.result) == ("done", ("msgpack", b"x"))


def test_an_intent_taken_up_again_counts_a_call(conn: Any) -> None:
    """`again` counts one more call of an intent without a result; a look does not."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    intent = Intent("r1", "pay", "resend", "h", "k")
    held.intend(intent)
    looked = held.intend(intent)
    again = held.intend(Intent("r1", "pay", "resend", "h", "k", again=True))
    assert (looked.state, looked.attempts) == ("intent", 1)
    assert (again.state, again.attempts) == ("intent", 2)
    rows = conn.execute(
        "SELECT e.attempts, k.attempts "
        "FROM fleet.effects e JOIN fleet.keyed_effects k USING (effect_key)"
    ).fetchall()
    assert rows == [(2, 2)]


def test_a_business_effect_is_held_until_its_result_is_committed(conn: Any, other: Any) -> None:
    """The second thread is told that the key is busy, then gets the first one's result."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1")
    one, two = Claim(conn, take(conn, "A")), Claim(other, take(other, "B"))
    intent = Intent("k1", "pay", "resend", "h", "refund:A")
    assert one.intend(intent).state == "new"
    assert two.intend(intent).state == "busy"
    one.note(Result("k1", "done", ("msgpack", b"x"), None, 1, "refund:A"))
    assert two.intend(intent).state == "busy"
    one.flush()
    found = two.intend(intent)
    assert (found.state, found.result) == ("done", ("msgpack", b"x"))


def test_a_cancelled_thread_sends_nothing(conn: Any, other: Any) -> None:
    """The flag is read at the barrier: no intent is written after it."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    other.execute("UPDATE fleet.threads SET cancel_requested = true")
    with pytest.raises(Cancelled):
        held.intend(Intent("r1", "pay", "resend", "h", None))
    assert conn.execute("SELECT count(*) FROM fleet.effects").fetchone() == (0,)
    assert finish(held, Kind.CANCELLED, following=NEXT).result == "empty"
    assert status(conn, "A") == [(1, "cancelled", 0)]
    assert conn.execute("SELECT status FROM fleet.threads").fetchone() == ("cancelled",)


@pytest.mark.parametrize(("more", "outcome"), [(False, "claimed"), (True, "cancelled")])
def test_a_cancel_that_came_too_late_is_not_for_later_mail(
    more: bool, outcome: str, conn: Any, other: Any
) -> None:
    """The turn was done already; mail that was there when it was asked for is called off."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    other.execute("UPDATE fleet.threads SET cancel_requested = true")
    if more:
        accept(conn, "A", "m2", kind="input")
    finish(held)
    accept(conn, "A", "m3", kind="input")
    assert take(conn, "A").result == outcome


def test_the_end_is_one_transaction(conn: Any, other: Any, database: Database) -> None:
    """Message, thread and question are all there or none (G3); the backend dies in between."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    question = {"question_id": "q", "kind": "value", "payload": 1}
    other.execute(
        "CREATE FUNCTION pg_temp_stop() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
    )
    other.execute(
        "CREATE TRIGGER stop BEFORE INSERT ON fleet.questions FOR EACH ROW "
        "EXECUTE FUNCTION pg_temp_stop()"
    )
    with pytest.raises(ClaimLost):
        finish(held, Kind.WAITING, questions=(question,))
    assert status(other, "A") == [(1, "claimed", 1)]
    assert other.execute("SELECT status FROM fleet.threads").fetchone() == ("running",)
    other.execute("DROP TRIGGER stop ON fleet.questions")
    finish(Claim(other, take_over(other, "A")), Kind.WAITING, questions=(question,))
    assert status(other, "A") == [(1, "done", 1)]
    assert other.execute("SELECT status FROM fleet.questions").fetchone() == ("open",)


def test_messages_go_in_the_order_of_acceptance(conn: Any) -> None:
    """The end of one turn claims the same thread's next message, in order."""
    for name in ("m1", "m2", "m3"):
        accept(conn, "A", name, kind="start" if name == "m1" else "input")
    seen = []
    claimed = take(conn, "A")
    while claimed.result == "claimed":
        seen.append(claimed.message_id)
        claimed = finish(Claim(conn, claimed), following=NEXT)
    assert seen == ["m1", "m2", "m3"]


def test_a_dead_message_holds_up_those_after_it(conn: Any) -> None:
    """Later mail of the thread waits; other threads do not."""
    accept(conn, "A", "m1")
    accept(conn, "A", "m2", kind="input")
    accept(conn, "B", "m1")
    following = finish(Claim(conn, take(conn, "A")), Kind.DEAD, error="no", following=NEXT)
    assert (following.result, following.thread_id) == ("claimed", "refund:B")
    finish(Claim(conn, following))
    assert take(conn, "A").result == "blocked"
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"


def test_a_message_that_kills_is_quarantined(database: Database, conn: Any) -> None:
    """After three crashes it is dead with its reason; an orderly end takes its crash back."""
    accept(conn, "A", "m1")
    finish(Claim(conn, take(conn, "A")), Kind.RELEASED)
    for _ in range(3):
        with database.session() as victim:
            assert take_over(victim, "A").result == "claimed"
    assert take_over(conn, "A").result == "dead"
    assert status(conn, "A") == [(1, "dead", 3)]
    row = conn.execute("SELECT status, last_error FROM fleet.threads").fetchone()
    assert row[0] == "failed" and "3 attempts at it were lost" in row[1]
    assert take(conn, "A").result == "blocked"


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.LOST])
def test_every_end_that_is_written_takes_its_crash_back(conn: Any, kind: Kind) -> None:
    """The claim counts one, in case the process dies; who ends a turn has not died."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    assert status(conn, "A") == [(1, "claimed", 1)]
    finish(held, kind)
    assert [crashes for *_, crashes in status(conn, "A")] == [0]


def test_a_retry_is_due_later(conn: Any) -> None:
    """A delayed message is not claimed before its time, by name or in order."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    held.finish(end(Outcome(Kind.RETRY, "shop down"), 1, 60.0), None)
    assert take(conn, "A").result == "later"
    assert claim_next(conn, "fleet", "", "me", 3).result == "empty"
    conn.execute("SELECT fleet.move_clock('61 s')")
    again = claim_next(conn, "fleet", "", "me", 3)
    assert (again.result, again.failures, again.crashes) == ("claimed", 1, 1)
    assert again.failing_for is not None and again.failing_for > 60


def test_tenants_take_turns(conn: Any) -> None:
    """One tenant's backlog does not hold up another's only message."""
    for n in range(3):
        accept(conn, f"A{n}", "m", tenant="acme")
    accept(conn, "B", "m", tenant="zeta")
    order, tenant = [], ""
    for _ in range(4):
        claimed = claim_next(conn, "fleet", tenant, "me", 3)
        tenant = claimed.tenant
        order.append(tenant)
        finish(Claim(conn, claimed))
    assert order == ["acme", "zeta", "acme", "acme"]


def test_priority_goes_before_age(conn: Any) -> None:
    """A later message of higher priority is next."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1", priority=5)
    assert claim_next(conn, "fleet", "", "me", 3).thread_id == "refund:B"


def test_two_sessions_never_pick_the_same_thread(conn: Any, other: Any) -> None:
    """Locked threads are skipped, not waited for."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1")
    picked = {claim_next(c, "fleet", "", "me", 3).thread_id for c in (conn, other)}
    assert picked == {"refund:A", "refund:B"}
    assert claim_next(other, "fleet", "", "me", 3).result == "empty"


def test_a_restart_drops_what_came_before(conn: Any) -> None:
    """A new generation starts clean, once, however often the message is attempted."""
    accept(conn, "A", "m1")
    accept(conn, "A", "m2", kind="input")
    accept(conn, "A", "m3", on_existing="restart")
    first = take(conn, "A")
    assert (first.message_id, first.generation) == ("m3", 2)
    assert first.checkpoint_thread == "refund:A#2"
    finish(Claim(conn, first), Kind.RELEASED)
    again = take(conn, "A")
    assert (again.message_id, again.generation) == ("m3", 2)
    assert [s for _, s, _ in status(conn, "A")] == ["dropped", "dropped", "claimed"]


def test_a_producer_s_open_transaction_holds_up_no_turn(conn: Any, database: Database) -> None:
    """Mail accepted but not committed is invisible, and neither claim nor end waits for it."""
    accept(conn, "A", "m1")
    with database.session() as producer:
        producer.execute("BEGIN")
        accept(producer, "A", "m2", kind="input")
        conn.execute("SET statement_timeout = '2 s'")
        claimed = take(conn, "A")
        assert finish(Claim(conn, claimed), following=NEXT).result == "empty"
        producer.execute("COMMIT")
    assert take(conn, "A").message_id == "m2"


def test_a_resolved_doubt_lets_its_message_go_on(conn: Any) -> None:
    """A resolve overtakes the message that is in doubt, which is then due again."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    held.intend(Intent("r1", "pay", "park", "h", None))
    finish(held, Kind.IN_DOUBT, error="in doubt")
    assert take(conn, "A").result == "blocked"
    payload = {"request_id": "r1", "happened": False}
    assert accept(conn, "A", "m2", kind="resolve", payload=payload)["outcome"] == "accepted"
    claimed = claim_next(conn, "fleet", "", "me", 3)
    assert claimed.message_id == "m2"
    resolving = Claim(conn, claimed)
    resolving.note(Result("r1", "forgotten", None, None, 0, None))
    following = finish(resolving, resumes=True, following=NEXT)
    assert (following.message_id, following.crashes) == ("m1", 1)
    assert conn.execute("SELECT count(*) FROM fleet.effects").fetchone() == (0,)


def test_a_retried_call_gives_its_key_back_with_its_result(conn: Any, other: Any) -> None:
    """However often it was tried: the next thread need not wait for the end of the turn."""
    accept(conn, "A", "m1")
    accept(conn, "B", "m1")
    held = Claim(conn, take(conn, "A"))
    for again in (False, True, True):
        held.intend(Intent("r1", "pay", "resend", "h", "refund:A1", again))
    held.note(Result("r1", "done", ("null", b""), None, 3, "refund:A1"))
    held.flush()
    next_one = Claim(other, take(other, "B"))
    assert next_one.intend(Intent("r2", "pay", "resend", "h", "refund:A1")).state == "done"


def test_a_restart_takes_open_questions_with_it(conn: Any, other: Any, database: Database) -> None:
    """Also one that is asked after the restart was accepted; and none is answered before it."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    accept(other, "A", "m2", on_existing="restart")
    asked = {"question_id": "q", "kind": "value", "payload": {}, "response_schema": None}
    finish(held, Kind.WAITING, questions=(asked | {"expires_in": None},))
    answer = {"kind": "answer", "question_id": "q", "payload": {"value": 1}}
    assert accept(other, "A", "m3", **answer)["outcome"] == "stale_question"
    assert take(conn, "A").generation == 2
    assert database.value("SELECT status FROM fleet.questions") == "superseded"


def test_mail_behind_a_hasty_amendment_is_not_hidden(conn: Any) -> None:
    """A person's word that waits behind mail which backs off is no candidate yet."""
    for n in range(20):
        accept(conn, f"W{n}", "m1", delay=60)
        accept(conn, f"W{n}", "m2", kind="amend")
    accept(conn, "Z", "m1")
    assert claim_next(conn, "fleet", "", "me", 3).thread_id == "refund:Z"


def test_rows_that_can_t_be_written_as_json_end_the_turn_with_the_reason(conn: Any) -> None:
    """Nothing of them is sent, and the session goes on."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    held.buffer.checkpoints["", "1ef"] = (None, {"v": object()}, {})
    held.buffer.touch()
    with pytest.raises(StateUnstorable, match="object"):
        held.flush()
    assert finish(held, Kind.DEAD, error="no").result == "empty"
    assert status(conn, "A") == [(1, "dead", 0)]
