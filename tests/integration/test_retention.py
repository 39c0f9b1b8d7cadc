"""Retention on real threads: what goes, what stays, and who is never touched."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from graphs.registry import Registry
from infra.retention import Policy, PruneRunning, Pruning
from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from producers.errors import ProducerError
from tests.harness import ROOT, Database, eventually, write_graphs
from tests.integration.mailbox import ask
from tests.integration.test_claim import accept
from tests.integration.test_cli import Done
from workers.drain import drain
from workers.pruner import Pruner
from workers.slot import Slot

GRAPHS = ("chat", "nested", "remembering", "delta")
NEVER = Policy(0, 0, 0, 0, 0, 0, 0, 0, 0)
TABLES = {
    "threads": "fleet.threads",
    "messages": "fleet.messages",
    "effects": "fleet.effects",
    "questions": "fleet.questions",
    "events": "fleet.events",
    "keyed_effects": "fleet.keyed_effects",
    "rejected_wakeups": "fleet.rejected_wakeups",
    "checkpoints": "checkpoints",
    "checkpoint_blobs": "checkpoint_blobs",
    "checkpoint_writes": "checkpoint_writes",
}


def policy(**days: float) -> Policy:
    """Keeps everything but what is named."""
    return Policy(**{name: 0.0 for name in Policy.__slots__} | days)


@pytest.fixture
def slot(settings_env: None, database: Database, tmp_path: Path) -> Iterator[Slot]:
    """Serves the chats in this process."""
    names = {n: f"{ROOT}/tests/graphs/chat.py:{n}" for n in GRAPHS}
    found = write_graphs(tmp_path, **names)
    database.register(found)
    made = Slot(get_settings(), Registry.load(found), "fleet")
    yield made
    made.disconnect()


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as conn:
        yield conn


def talk(fleet: Fleet, slot: Slot, graph: str = "chat", key: str = "A", turns: int = 3) -> str:
    """A thread after so many turns, with a row in every table of a thread."""
    thread = fleet.submit(graph, key, {"said": ["one"]}, message_id="m0").thread_id
    drain(slot, thread)
    for n in range(1, turns):
        fleet.send(thread, {"said": [f"said {n}"]}, message_id=f"m{n}")
        drain(slot, thread)
    return thread


def ledger(database: Database, thread: str, key: str | None = None, state: str = "done") -> None:
    """An effect, and the business effect of that key."""
    database.fetch(
        """INSERT INTO fleet.effects (thread_id, request_id, generation, seq, name, policy, state,
            effect_key, args_hash, attempts, epoch, first_started_at, started_at)
        VALUES (%s, 'r1', 1, 1, 'pay', 'resend', %s, %s, 'h', 1, 1, now(), now())""",
        thread,
        state,
        key,
    )
    if key:
        database.fetch(
            """INSERT INTO fleet.keyed_effects (effect_key, request_id, thread_id, name, state,
                args_hash, attempts, first_started_at, started_at, finished_at)
            VALUES (%s, 'r1', %s, 'pay', %s, 'h', 1, now(), now(), now())""",
            key,
            thread,
            state,
        )


def later(database: Database, days: float) -> None:
    """Move the database's clock."""
    database.fetch("SELECT fleet.move_clock(%s * interval '1 day')", days)


def rows(database: Database) -> dict[str, int]:
    """Rows of every table."""
    return {n: database.value(f"SELECT count(*) FROM {t}") for n, t in TABLES.items()}


def said(slot: Slot, thread: str) -> list[str]:
    """What the thread's state holds."""
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    graph = slot.registry.get(thread.partition(":")[0]).graph
    with psycopg.connect(get_settings().require_postgres(), row_factory=dict_row) as conn:
        state = graph.copy({"checkpointer": PostgresSaver(conn)}).get_state(
            {"configurable": {"thread_id": thread}}
        )
    found: list[str] = state.values.get("said", [])
    return found


# What goes, and when


def test_each_table_has_a_time_of_its_own(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """A day before its time nothing of it goes, a day after it all of it, and nothing else."""
    thread = talk(fleet, slot)
    ledger(database, thread)
    before = rows(database)
    kept = policy(messages=10, questions=20, effects=30, checkpoints=40)
    for day, gone in [(9, set()), (11, {"messages"}), (31, {"effects"})]:
        later(database, day)
        removed = +Pruning(conn, kept).run().removed
        assert {*removed} == gone
    later(database, 41)
    assert {*Pruning(conn, kept).run().removed} >= {
        "checkpoints",
        "checkpoint_blobs",
        "checkpoint_writes",
    }
    after = rows(database)
    # The start stays, without its payload: the key was there.
    assert (before["messages"], after["messages"], after["threads"]) == (3, 1, 1)
    assert after["checkpoints"] == after["checkpoint_blobs"] == after["checkpoint_writes"] == 0
    assert database.value("SELECT payload FROM fleet.messages") is None


def test_a_start_that_comes_again_is_known_after_its_payload_is_gone(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """The same message is a duplicate, another start meets the thread; nothing runs again."""
    thread = talk(fleet, slot)
    later(database, 11)
    Pruning(conn, policy(messages=10)).run()
    again = fleet.submit("chat", "A", {"said": ["one"]}, message_id="m0")
    assert (again.outcome, again.thread_id) == ("duplicate", thread)
    assert fleet.submit("chat", "A", {"said": ["x"]}, message_id="m9").outcome == "existing"
    assert database.value("SELECT count(*) FROM fleet.messages") == 1


def test_a_restart_without_an_input_says_that_it_is_gone(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """It is not started with nothing."""
    thread = talk(fleet, slot)
    later(database, 11)
    Pruning(conn, policy(messages=10)).run()
    with pytest.raises(ProducerError, match="not kept any more"):
        fleet.restart(thread)
    assert fleet.restart(thread, {"said": ["new"]}).outcome == "accepted"


def test_a_thread_goes_with_all_that_is_its_own(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """Of every generation; the key is free, and business effects stay."""
    thread = talk(fleet, slot)
    fleet.restart(thread, {"said": ["anew"]})
    drain(slot, thread)
    ledger(database, thread, "refund:1")
    ask(database, thread, "q1", status="answered")
    database.fetch("UPDATE fleet.threads SET status = 'done'")
    assert database.value("SELECT count(DISTINCT thread_id) FROM checkpoints") == 2
    later(database, 101)
    Pruning(conn, policy(threads=100)).run()
    assert {name for name, n in rows(database).items() if n} == {"keyed_effects"}
    assert fleet.submit("chat", "A", {"said": ["one"]}, message_id="m0").outcome == "accepted"


def test_business_effects_and_rejected_wake_ups_have_a_time_too(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """Of finished threads and of threads that are gone; one in doubt stays."""
    talk(fleet, slot, key="A", turns=1)
    ledger(database, "chat:A", "k1")
    ledger(database, "chat:gone", "k2")
    ledger(database, "chat:doubt", "k3", state="intent")
    talk(fleet, slot, key="B", turns=1)
    ledger(database, "chat:B", "k4")
    database.fetch("UPDATE fleet.threads SET status = 'failed' WHERE thread_id = 'chat:B'")
    database.fetch("INSERT INTO fleet.rejected_wakeups (at, reason, body) VALUES (now(), '', '')")
    later(database, 101)
    report = Pruning(conn, policy(keyed_effects=100, rejected_wakeups=100)).run()
    assert +report.removed == {"keyed_effects": 2, "rejected_wakeups": 1}
    left = database.fetch("SELECT effect_key FROM fleet.keyed_effects ORDER BY 1")
    assert left == [("k3",), ("k4",)]


def test_old_events_go_of_threads_in_use_too(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """Those of a thread that is finished all; of one that is at rest for now, the old ones."""
    talk(fleet, slot, key="A", turns=1)
    talk(fleet, slot, key="B", turns=1)
    later(database, 10)
    fleet.send("chat:B", {"said": ["more"]}, message_id="new")
    drain(slot, "chat:B")
    report = Pruning(conn, policy(events=9)).run()
    assert +report.removed == {"events": 6}
    left = database.fetch("SELECT thread_id, type FROM fleet.events ORDER BY epoch, n")
    assert left == [("chat:B", t) for t in ("received", "step", "ended")]


# Who is never touched

ALL = policy(
    history=1,
    checkpoints=1,
    messages=1,
    questions=1,
    events=1,
    effects=1,
    threads=1,
    rejected_wakeups=1,
)


@pytest.mark.parametrize(
    "status", ["idle", "running", "waiting", "in_doubt", "failed", "incompatible"]
)
def test_an_open_thread_is_never_touched(
    fleet: Fleet, slot: Slot, database: Database, conn: Any, status: str
) -> None:
    """However old it is."""
    ledger(database, talk(fleet, slot))
    database.fetch("UPDATE fleet.threads SET status = %s", status)
    before = rows(database)
    later(database, 10_000)
    assert not +Pruning(conn, ALL).run().removed
    assert rows(database) == before


@pytest.mark.parametrize("status", ["pending", "claimed", "in_doubt", "dead"])
def test_a_thread_with_open_mail_is_never_touched(
    fleet: Fleet, slot: Slot, database: Database, conn: Any, status: str
) -> None:
    """Whatever its own status says."""
    talk(fleet, slot)
    database.fetch("UPDATE fleet.messages SET status = %s WHERE message_id = 'm2'", status)
    before = rows(database)
    later(database, 10_000)
    assert not +Pruning(conn, ALL).run().removed
    assert rows(database) == before


def test_a_thread_that_is_being_claimed_is_passed_over(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """Its row is taken: retention does not wait, and finds it the next time."""
    talk(fleet, slot)
    later(database, 10)
    with database.connect() as claim, claim.transaction():
        claim.execute("SELECT FROM fleet.threads FOR UPDATE")
        assert not +Pruning(conn, ALL, afresh=True).run().removed
    assert Pruning(conn, ALL, afresh=True).run().removed["threads"] == 1


def test_mail_that_is_accepted_meanwhile_finds_its_thread(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """A producer's open transaction holds retention off; the other way round it waits."""
    thread = talk(fleet, slot)
    later(database, 10)
    with database.connect() as producer, producer.transaction():
        accept(producer, "A", "late", graph="chat", kind="input", payload={"said": ["more"]})
        assert not +Pruning(conn, ALL, afresh=True).run().removed
    drain(slot, thread)
    assert said(slot, thread)[-1] == "answer to more"


def test_only_one_prunes_at_a_time(database: Database, conn: Any) -> None:
    """The second says so and changes nothing."""
    with database.connect() as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('fleet.prune', 3))")
        with pytest.raises(PruneRunning):
            Pruning(conn, ALL).run()
        other.execute("SELECT pg_advisory_unlock_all()")
    Pruning(conn, ALL).run()


# The history of long threads


@pytest.mark.parametrize("graph", ["chat", "nested", "remembering"])
def test_a_long_thread_keeps_its_latest_checkpoint_and_goes_on(
    fleet: Fleet, slot: Slot, database: Database, conn: Any, graph: str
) -> None:
    """Its state is the same, values that nothing refers to are gone, and it takes more input."""
    thread = talk(fleet, slot, graph, turns=4)
    before, state = rows(database), said(slot, thread)
    later(database, 31)
    removed = Pruning(conn, policy(history=30)).run().removed
    after = rows(database)
    assert said(slot, thread) == state
    assert 0 < after["checkpoints"] <= 4 < before["checkpoints"]
    assert after["checkpoint_blobs"] < before["checkpoint_blobs"]
    for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
        assert before[table] - after[table] == removed[table]
    assert database.value("SELECT count(*) FROM checkpoints WHERE checkpoint_ns LIKE '%%:%%'") == 0
    fleet.send(thread, {"said": ["more"]})
    drain(slot, thread)
    assert said(slot, thread)[: len(state) + 1] == [*state, "more"]


def test_the_history_of_a_thread_in_use_goes_by_its_own_age(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """What is younger stays, whole: a checkpoint of yesterday can still be gone back to."""
    thread = talk(fleet, slot, turns=3)
    old = "UPDATE checkpoints SET checkpoint = jsonb_set(checkpoint, '{ts}', to_jsonb(%s::text))"
    database.fetch(f"{old} WHERE (metadata->>'step')::int < 4", "2020-01-01T00:00:00+00:00")
    database.fetch("UPDATE fleet.threads SET created_at = '2020-01-01'")
    kept = database.fetch(
        "SELECT checkpoint_id FROM checkpoints WHERE (metadata->>'step')::int >= 4 ORDER BY 1"
    )
    assert len(kept) > 1
    Pruning(conn, policy(history=30)).run()
    assert database.fetch("SELECT checkpoint_id FROM checkpoints ORDER BY 1") == kept
    assert len(said(slot, thread)) == 6


def test_a_thread_with_a_delta_channel_is_reported_and_not_touched(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """Its values are rebuilt from older checkpoints."""
    thread = talk(fleet, slot, "delta", turns=4)
    talk(fleet, slot, "chat", turns=4)
    state = said(slot, thread)
    of_delta = "SELECT * FROM checkpoints WHERE thread_id = 'delta:A' ORDER BY checkpoint_id"
    before = database.fetch(of_delta)
    later(database, 31)
    report = Pruning(conn, policy(history=30)).run()
    assert report.delta_threads == ["delta:A"]
    assert database.fetch(of_delta) == before
    assert report.removed["checkpoints"] > 0
    assert said(slot, thread) == state and len(state) == 8


# How it runs


def test_a_dry_run_counts_exactly_and_changes_nothing(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """What it says is what goes, also where one setting's threads are another's too."""
    for n in range(7):
        ledger(database, talk(fleet, slot, key=f"A{n}", turns=2), f"k{n}")
    database.fetch("INSERT INTO fleet.rejected_wakeups (at, reason, body) VALUES (now(), '', '')")
    later(database, 50)
    talk(fleet, slot, key="new", turns=2)
    later(database, 101)
    kept = policy(
        history=10,
        checkpoints=40,
        messages=40,
        questions=40,
        effects=40,
        keyed_effects=100,
        threads=100,
        rejected_wakeups=1,
    )
    before = rows(database)
    marks = database.fetch("SELECT * FROM fleet.retention")
    counted = Pruning(conn, kept, dry_run=True, afresh=True).run()
    assert rows(database) == before
    assert database.fetch("SELECT * FROM fleet.retention") == marks
    done = Pruning(conn, kept, afresh=True).run()
    assert counted == done and done.removed["threads"] == 7
    blanked = 1
    for table, n in done.removed.items():
        gone = before[table] - rows(database)[table]
        assert gone == n - (blanked if table == "messages" else 0), table


def test_a_second_run_looks_only_at_what_has_come_of_age(
    fleet: Fleet, slot: Slot, database: Database, conn: Any
) -> None:
    """And misses nothing of it; a run by hand looks at all."""
    talk(fleet, slot, key="A")
    later(database, 11)
    kept = policy(messages=10)
    assert Pruning(conn, kept).run().removed["messages"] == 3
    talk(fleet, slot, key="B")
    assert not +Pruning(conn, kept).run().removed
    later(database, 22)
    assert Pruning(conn, kept).run().removed["messages"] == 3


def test_large_amounts_go_in_small_transactions(
    fleet: Fleet, database: Database, conn: Any
) -> None:
    """A run that is stopped keeps what it has done, and the next one goes on from there."""
    database.fetch(
        """INSERT INTO fleet.threads (thread_id, graph, key, status, created_at, updated_at)
        SELECT 'chat:' || n, 'chat', n, 'done', now() - interval '9 days', now() - interval '9 days'
        FROM generate_series(1, 350) AS n"""
    )
    asked: list[None] = []

    def twice() -> bool:
        asked.append(None)
        return len(asked) > 2

    report = Pruning(conn, policy(threads=1), stop=twice).run()
    assert report.removed["threads"] == 200
    assert Pruning(conn, policy(threads=1)).run().removed["threads"] == 150


def test_the_workers_job_says_what_it_did(
    settings_env: None, fleet: Fleet, slot: Slot, database: Database, monkeypatch: Any
) -> None:
    """run_once gives the counts; while another prunes it does nothing."""
    monkeypatch.setenv("FLEET_KEEP_MESSAGES_DAYS", "10")
    get_settings.cache_clear()
    talk(fleet, slot)
    later(database, 11)
    pruner = Pruner(get_settings())
    assert not pruner.tick()
    with database.connect() as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('fleet.prune', 3))")
        assert pruner.run_once() == {}
    assert eventually(pruner.run_once)["messages"] == 3
    pruner._due = 0.0
    assert pruner.tick() and isinstance(pruner._thread, threading.Thread)
    pruner._thread.join(10)
    assert not pruner._thread.is_alive() and not pruner.tick()


# The command


@pytest.fixture
def cli(
    slot: Slot, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    def run(*args: str, **settings: str) -> Done:
        for name, value in settings.items():
            monkeypatch.setenv(f"FLEET_{name.upper()}", value)
        get_settings.cache_clear()
        capfd.readouterr()
        code = main(args)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def test_fleet_prune_says_what_would_go_and_then_removes_it(
    fleet: Fleet, slot: Slot, database: Database, cli: Callable[..., Done]
) -> None:
    """With --dry-run nothing changes; --json has the counts, the threads left, the settings."""
    talk(fleet, slot, "delta")
    talk(fleet, slot, key="B")
    later(database, 91)
    before = rows(database)
    dry = cli("prune", "--dry-run", "--json").json()
    assert dry["dry_run"] is True and dry["removed"]["checkpoints"] == before["checkpoints"]
    assert dry["keep_days"]["threads"] == 0 and rows(database) == before
    done = cli("prune", "--json").json()
    assert done == dry | {"dry_run": False}
    assert rows(database)["checkpoints"] == 0
    again = cli("prune")
    assert again.code == 0 and "checkpoints\t0" in again.out


def test_fleet_prune_names_the_threads_that_it_leaves(
    fleet: Fleet, slot: Slot, database: Database, cli: Callable[..., Done]
) -> None:
    """On stderr, with the reason."""
    talk(fleet, slot, "delta")
    later(database, 31)
    done = cli("prune", "--dry-run")
    assert "delta:A" in done.err and "DeltaChannel" in done.err and "dry run" in done.err


def test_a_ledger_shorter_than_what_it_protects_is_refused(
    fleet: Fleet, slot: Slot, database: Database, cli: Callable[..., Done]
) -> None:
    """The settings say so, and nothing is removed."""
    talk(fleet, slot)
    later(database, 1000)
    before = rows(database)
    done = cli("prune", keep_effects_days="5")
    assert done.code == 2 and "FLEET_KEEP_EFFECTS_DAYS" in done.line()
    assert "FLEET_KEEP_MESSAGES_DAYS (90)" in done.line() and rows(database) == before


def test_fleet_prune_says_when_a_worker_is_at_it(
    database: Database, cli: Callable[..., Done]
) -> None:
    """Exit code 1, as an object for a machine."""
    with database.connect() as other:
        other.execute("SELECT pg_advisory_lock(hashtextextended('fleet.prune', 3))")
        done = cli("prune", "--json")
    assert done.code == 1 and done.error()["code"] == "prune_running"
