"""A whole turn in this process, against real servers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphs.registry import Registry
from infra import failpoints
from infra.migrate import register_graphs
from infra.settings import get_settings
from producers import Fleet
from tests.harness import Database, Shop, eventually
from workers.claim import Claim
from workers.claimed import Claimed
from workers.drain import drain
from workers.excuses import MOST, Excuses
from workers.slot import Slot

#: Graphs of a node that ends with an error no `except Exception` sees.
STOPPING = {
    "halts": "Halt",
    "ahalts": "Halt",
    "halts_beside": "Halt",
    "closes": "GeneratorExit",
    "acloses": "GeneratorExit",
    "closes_beside": "GeneratorExit",
}
MISTAKES = {"mistakes": "InvalidUpdateError", "circles": "GraphRecursionError"}
UNRULY = Path(__file__).parents[1] / "graphs" / "unruly.py"


def refuse_questions(database: Database) -> None:
    """Let the end of a turn that asks something fail, as a full disk or a bad row would."""
    database.fetch(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = TG_ARGV[0]; END $$"
    )


@pytest.mark.parametrize(
    ("sqlstate", "outcome", "message", "thread"),
    [("53100", "waiting", "pending", "idle"), ("22P05", "waiting", "dead", "failed")],
)
def test_an_end_that_postgres_refuses_is_recorded_with_its_reason(
    slot: Slot,
    fleet: Fleet,
    database: Database,
    shop: Shop,
    sqlstate: str,
    outcome: str,
    message: str,
    thread: str,
) -> None:
    """Tried again when the server is in trouble, dead when the rows are; the lock is free."""
    refuse_questions(database)
    database.fetch(
        "CREATE TRIGGER refuse BEFORE INSERT ON fleet.questions FOR EACH ROW "
        f"EXECUTE FUNCTION refuse('{sqlstate}')"
    )
    order = shop.new_order("1500.00")
    receipt = fleet.submit("refund", order, {"user_id": "u_42"})
    done = drain(slot, receipt.thread_id)
    assert [d["thread_id"] for d in done] == [receipt.thread_id]
    assert done[0]["outcome"] != outcome
    status = fleet.status(receipt.thread_id)
    assert (status.status, status.messages[0].status) == (thread, message)
    assert "no room" in (status.last_error or "")
    assert status.messages[0].crashes == 0
    assert database.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_a_lost_session_ends_the_turn_and_the_next_one_has_a_new_session(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """The slot goes on with a session of its own; the message is claimed again."""
    order = shop.new_order("20.00")
    receipt = fleet.submit("refund", order, {"user_id": "u_42"})
    before = slot.connection().info.backend_pid
    database.fetch("SELECT pg_terminate_backend(%s)", before)
    done = drain(slot, receipt.thread_id)
    assert done[-1]["outcome"] == "done"
    assert slot.connection().info.backend_pid != before
    assert shop.refunds(order) == 1


def test_a_message_that_keeps_losing_its_session_is_not_quarantined(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """Postgres may restart more often than a process may die: each loss is taken back."""
    most = slot.settings.max_crashes
    order = shop.new_order("20.00")
    thread_id = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    failpoints.arm(f"effect.after_call=disconnect:::{most + 1}")
    for _ in range(most + 1):
        (turn,) = drain(slot, thread_id)[:1]
        assert turn["outcome"] == "lost"
        eventually(lambda: database.value("SELECT crashes FROM fleet.messages") == 0)
    failpoints.arm("")
    assert drain(slot, thread_id)[-1]["outcome"] == "done"
    assert shop.refunds(order) == 1


def test_a_turn_that_was_stopped_for_want_of_progress_stays_counted(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """Its session went because of it."""
    excuses = Excuses(slot.settings.model_copy(update={"turn_timeout": 0.0}))
    thread_id = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    excuses.owe(Claim(slot.connection(), slot.claim(thread_id)))
    excuses.pay()
    assert database.value("SELECT crashes FROM fleet.messages") == 1


def lose_session(slot: Slot, thread_id: str, excuses: Excuses) -> None:
    """Claim the thread, and lose it with the session."""

    def claim() -> Claimed | None:
        # Postgres may have yet to see that the last session is gone.
        return None if (found := slot.claim(thread_id)).result == "busy" else found

    claimed = eventually(claim)
    assert claimed is not None and claimed.result == "claimed"
    excuses.owe(Claim(slot.connection(), claimed))
    slot.disconnect()


def test_a_session_lost_before_any_graph_ran_is_excused(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """Nothing waits for the slot's next turn, which may be long in coming."""
    thread_id = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    lose_session(slot, thread_id, slot.keeper.excuses)
    assert eventually(lambda: database.value("SELECT crashes FROM fleet.messages") == 0)


def test_a_message_that_ends_every_session_is_quarantined(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """It may be the message that takes Postgres down; a retry begins to count anew."""
    excuses = Excuses(slot.settings)
    thread_id = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    for _ in range(MOST + slot.settings.max_crashes):
        lose_session(slot, thread_id, excuses)
        excuses.pay()
    eventually(lambda: slot.claim(thread_id).result == "dead")
    assert "quarantined" in (fleet.status(thread_id).last_error or "")
    fleet.retry(thread_id)
    lose_session(slot, thread_id, excuses)
    excuses.pay()
    assert database.value("SELECT crashes FROM fleet.messages") == 0


def test_an_excuse_that_comes_late_takes_nothing_from_the_next_claim(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """Which takes back its own: the counts may have been forgotten in between."""
    excuses = Excuses(slot.settings)
    thread_id = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"}).thread_id
    lose_session(slot, thread_id, excuses)
    database.fetch("UPDATE fleet.messages SET crashes = 0")
    eventually(lambda: slot.claim(thread_id).result == "claimed")
    excuses.pay()
    assert database.value("SELECT crashes FROM fleet.messages") == 1


@pytest.fixture
def unruly(shop: Shop, settings_env: None, tmp_path: Path, database: Database) -> Iterator[Slot]:
    """A slot for the graphs of tests/graphs/unruly.py."""
    names = ("covers", "groups", "measures", "gives_up", "swallows", "gathers")
    names += ("fills", *MISTAKES, *STOPPING)
    file = tmp_path / "langgraph.json"
    file.write_text(json.dumps({"graphs": {n: f"{UNRULY}:{n}" for n in names}}))
    registry = Registry.load(file)
    with database.session() as conn:
        register_graphs(conn, registry.described())
    # What is to be tried again is not due at once, by chance, while the same drain goes on.
    patient = get_settings().model_copy(update={"backoff_base": 3600.0, "backoff_max": 3600.0})
    made = Slot(patient, registry, "fleet")
    yield made
    made.disconnect()


@pytest.mark.parametrize("graph", ["covers", "groups"])
def test_what_stopped_an_effect_is_not_covered_up(graph: str, unruly: Slot, fleet: Fleet) -> None:
    """A node that raises something else, or a task group, leaves it a retry."""
    receipt = fleet.submit(graph, "A", {})
    (turn,) = drain(unruly, receipt.thread_id)
    assert turn["outcome"] == "retry"
    (message,) = fleet.status(receipt.thread_id).messages
    assert (message.status, message.failures, message.crashes) == ("pending", 1, 0)


def test_a_value_that_is_almost_a_float_is_told(unruly: Slot, fleet: Fleet) -> None:
    """LangGraph's serializer refuses it too: the message is dead with the reason."""
    receipt = fleet.submit("measures", "A", {})
    (turn,) = drain(unruly, receipt.thread_id)
    assert turn["outcome"] == "dead"
    assert "Celsius" in (fleet.status(receipt.thread_id).last_error or "")


def test_a_node_that_cancels_itself_has_failed(unruly: Slot, fleet: Fleet) -> None:
    """An error that is no Exception ends the turn as any other, and the thread is free."""
    receipt = fleet.submit("gives_up", "A", {})
    (turn,) = drain(unruly, receipt.thread_id)
    assert turn["outcome"] == "retry"
    assert "CancelledError" in (fleet.status(receipt.thread_id).last_error or "")


# LangGraph lets go of a coroutine that a GeneratorExit has come out of.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine")
@pytest.mark.parametrize(("graph", "error"), (STOPPING | MISTAKES).items())
def test_what_a_node_raises_is_judged_whatever_it_is(
    graph: str, error: str, unruly: Slot, fleet: Fleet, database: Database
) -> None:
    """Dead at once with its name, no crash, and the slot goes on with its session."""
    receipt = fleet.submit(graph, "A", {})
    session = unruly.connection()
    (turn,) = drain(unruly, receipt.thread_id)
    found = fleet.status(receipt.thread_id)
    assert (turn["outcome"], found.status) == ("dead", "failed")
    assert (found.messages[0].error or "").startswith(error)
    assert found.messages[0].crashes == 0 and unruly.connection() is session
    fleet.retry(receipt.thread_id)
    assert [turn["outcome"] for turn in drain(unruly, receipt.thread_id)] == ["dead"]
    assert database.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_running_out_of_memory_is_counted_as_a_crash(
    unruly: Slot, fleet: Fleet, database: Database
) -> None:
    """Tried again twice, then quarantined with what happened; `fleet retry` begins anew."""
    receipt = fleet.submit("fills", "A", {})
    for attempt in (1, 2):
        assert drain(unruly, receipt.thread_id)[0]["outcome"] == "retry"
        (message,) = fleet.status(receipt.thread_id).messages
        assert (message.status, message.crashes, message.failures) == ("pending", attempt, 0)
        assert message.error == "MemoryError"
        database.fetch("UPDATE fleet.messages SET available_at = fleet.now()")
    assert drain(unruly, receipt.thread_id)[0]["outcome"] == "dead"
    error = fleet.status(receipt.thread_id).last_error or ""
    assert error.startswith("quarantined: 3 attempts") and "MemoryError" in error
    fleet.retry(receipt.thread_id)
    assert drain(unruly, receipt.thread_id)[0]["outcome"] == "retry"


def test_a_fault_of_ours_leaves_no_lock(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session goes with it, so that the sweep can hand the message on."""

    def fail(*_: Any) -> None:
        raise RuntimeError("a fault")

    receipt = fleet.submit("refund", shop.new_order("20.00"), {"user_id": "u_42"})
    monkeypatch.setattr("workers.turn.lift", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        drain(slot, receipt.thread_id)
    eventually(
        lambda: database.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    )
    monkeypatch.undo()
    assert drain(slot, receipt.thread_id)[-1]["outcome"] == "done"


@pytest.mark.parametrize("graph", ["swallows", "gathers"])
def test_what_a_node_makes_of_a_stopped_effect_is_not_kept(
    graph: str, unruly: Slot, fleet: Fleet, database: Database
) -> None:
    """The next attempt makes the call again: the thread is never done without it."""
    receipt = fleet.submit(graph, "A", {})
    for attempt in (1, 2):
        (turn,) = drain(unruly, receipt.thread_id)
        assert turn["outcome"] == "retry"
        (message,) = fleet.status(receipt.thread_id).messages
        assert (message.status, message.failures) == ("pending", attempt)
        database.fetch("UPDATE fleet.messages SET available_at = fleet.now()")
