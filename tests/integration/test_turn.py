"""A whole turn in this process, against real servers."""

from collections.abc import Iterator

import pytest

from graphs.registry import Registry
from infra.settings import get_settings
from producers import Fleet
from tests.harness import Database, Shop
from workers.drain import drain
from workers.slot import Slot


@pytest.fixture
def slot(shop: Shop, settings_env: None) -> Iterator[Slot]:
    made = Slot(get_settings(), Registry.load(get_settings().graphs_path), "fleet")
    yield made
    made.disconnect()


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
