"""A slot's session: its calls, and ends whose commit the next turn does not wait for."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from producers import Fleet
from tests.acceptance.standing import INPUT
from tests.harness import Database, Shop, eventually
from workers.claim import Claim
from workers.drain import drain
from workers.session import Call, Session, Then
from workers.slot import Slot

KEEP = Call("keep", str, "INSERT INTO kept VALUES ($1, $2) RETURNING word", ["text", "int4"])


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    """On a database with a table whose commits wait while somebody holds lock 42."""
    held_commits(database, "kept", "INSERT")
    with database.session() as session:
        yield session


def held_commits(database: Database, table: str, event: str, when: str = "true") -> None:
    """Commits that have touched such rows of the table wait for lock 42."""
    database.fetch("CREATE TABLE IF NOT EXISTS kept (word text NOT NULL, n integer)")
    database.fetch(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_advisory_xact_lock_shared(42);"
        " IF (to_jsonb(NEW)->>'n')::integer < 0 THEN RAISE EXCEPTION 'no room'; END IF;"
        " RETURN NULL; END $$"
    )
    database.fetch(
        f"CREATE CONSTRAINT TRIGGER wait AFTER {event} ON {table} DEFERRABLE INITIALLY DEFERRED "
        f"FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION wait()"
    )


class Told(list[str]):
    """What was done after commits, in order."""

    def then(self, name: str = "") -> Then:
        return Then(lambda: self.append(f"made{name}"), lambda: self.append(f"lost{name}"))


def test_a_row_comes_before_its_commit_and_what_follows_after_it(
    session: Session, database: Database
) -> None:
    told = Told()
    with database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(42)")
        assert session.call_ahead(KEEP, ("one", 1), told.then()) == "one"
        assert told == [] and database.value("SELECT count(*) FROM kept") == 0
        settling = threading.Thread(target=session.settle)
        settling.start()
        eventually(lambda: waiting(database))
        assert told == []
    settling.join(20)
    assert told == ["made"] and database.value("SELECT count(*) FROM kept") == 1
    session.settle()
    assert told == ["made"]


def test_whatever_the_session_is_used_for_next_comes_after_the_commit(session: Session) -> None:
    """A call, one whose commit is not waited for either, a statement."""
    told = Told()
    session.call_ahead(KEEP, ("one", 1), told.then("1"))
    session.call_ahead(KEEP, ("two", 2), told.then("2"))
    assert told == ["made1"]
    assert session.call(KEEP, ("three", 3)) == "three"
    assert told == ["made1", "made2"]
    session.call_ahead(KEEP, ("four", 4), told.then("4"))
    assert session.execute("SELECT count(*) FROM kept").fetchone() == (4,)
    assert told == ["made1", "made2", "made4"]


def test_a_statement_that_fails_has_no_commit(session: Session) -> None:
    told = Told()
    for call in (session.call, lambda *args: session.call_ahead(*args, told.then())):
        with pytest.raises(psycopg.errors.NotNullViolation):
            call(KEEP, (None, 1))
    assert session.call(KEEP, ("one", 1)) == "one"
    assert told == []


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_a_text_that_postgres_can_not_hold_is_refused_whole(session: Session, word: str) -> None:
    with pytest.raises((psycopg.DataError, ValueError)):
        session.call(KEEP, (word, 1))
    assert session.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_a_commit_that_fails_takes_the_session_with_it(session: Session) -> None:
    told = Told()
    assert session.call_ahead(KEEP, ("one", -1), told.then()) == "one"
    with pytest.raises(psycopg.OperationalError, match="no room"):
        session.settle()
    assert told == ["lost"] and session.closed
    session.settle()
    with pytest.raises(psycopg.OperationalError):
        session.call(KEEP, ("two", 2))


@pytest.mark.parametrize("how", ["terminated", "closed"])
def test_a_commit_under_way_is_lost_with_its_session(
    session: Session, database: Database, how: str
) -> None:
    told = Told()
    with database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(42)")
        session.call_ahead(KEEP, ("one", 1), told.then())
        if how == "closed":
            session.close()
        else:
            eventually(lambda: waiting(database))
            holder.execute("SELECT pg_terminate_backend(%s)", [session.info.backend_pid])
            with pytest.raises(psycopg.OperationalError):
                session.settle()
    assert told == ["lost"]


def waiting(database: Database) -> bool:
    """Whether somebody's commit waits for lock 42."""
    sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
    return bool(database.value(sql))


# Two turns


@pytest.fixture
def orders(slot: Slot, fleet: Fleet, shop: Shop, database: Database) -> list[str]:
    """Mail for two. The commit that ends a turn waits while somebody holds lock 42."""
    held_commits(database, "fleet.messages", "UPDATE", "NEW.status = 'done'")
    orders = [shop.new_order() for _ in range(2)]
    for order in orders:
        fleet.submit("refund", order, INPUT)
    return orders


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_the_next_turn_begins_and_calls_nothing_before_it_is_claimed_for_good(
    slot: Slot,
    fleet: Fleet,
    database: Database,
    shop: Shop,
    orders: list[str],
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, settles = threading.Event(), Claim.settle

    def settle(claim: Claim) -> None:
        if claim.key == orders[1]:
            begun.set()
        settles(claim)

    monkeypatch.setattr(Claim, "settle", settle)
    with database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(42)")
        draining = pool.submit(drain, slot, f"refund:{orders[0]}")
        # Its graph has come to its first checkpoint.
        assert begun.wait(20)
        assert shop.calls("orders", orders[1]) == 0
        assert [fleet.status(f"refund:{o}").status for o in orders] == ["running", "idle"]
        assert not draining.done()
    assert [turn["outcome"] for turn in draining.result(20)] == ["done", "done"]
    assert [shop.calls("orders", order) for order in orders] == [1, 1]


def test_both_turns_are_done_again_when_the_commit_between_them_is_lost(
    slot: Slot,
    fleet: Fleet,
    database: Database,
    shop: Shop,
    orders: list[str],
    pool: ThreadPoolExecutor,
) -> None:
    """No effect is repeated, and neither message is counted a crash."""
    with database.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(42)")
        draining = pool.submit(drain, slot, f"refund:{orders[0]}")
        eventually(lambda: waiting(database))
        holder.execute("SELECT pg_terminate_backend(%s)", [slot.connection().info.backend_pid])
    assert "lost" in [turn["outcome"] for turn in draining.result(20)]
    eventually(lambda: database.fetch("SELECT crashes FROM fleet.messages") == [(0,), (0,)])
    # As the sweep would have it done.
    drain(slot, f"refund:{orders[0]}")
    assert [fleet.status(f"refund:{order}").status for order in orders] == ["done", "done"]
    assert [shop.refunds(order) for order in orders] == [1, 1]
