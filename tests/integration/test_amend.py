"""Amendments: a person did a node's work by hand. Turns run in this process."""

from pathlib import Path
from typing import Any

import pytest

from producers import Fleet
from producers.errors import InvalidPayload, NothingToDo, UnknownThread
from tests.harness import ROOT, Database, Shop, write_graphs
from tests.integration.mailbox import begun
from workers.drain import drain
from workers.slot import Slot

CORRECTED = ROOT / "tests/graphs/corrected.py"
BY = "ann"


@pytest.fixture
def graphs_file(database: Database, tmp_path: Path) -> Path:
    """The refund graph and those of tests/graphs/corrected.py, known to the doors."""
    names = ("sequence", "many", "asks", "stops")
    found = write_graphs(
        tmp_path, refund="graphs.refund:graph", **{n: f"{CORRECTED}:{n}" for n in names}
    )
    database.register(found)
    return found


def amended(
    fleet: Fleet, slot: Slot, thread: str, as_node: str, values: dict[str, Any]
) -> tuple[str, str | None]:
    """(status, error) of the amendment's message after its turn."""
    receipt = fleet.amend(thread, as_node, values, by=BY)
    drain(slot, thread)
    found = next(m for m in fleet.status(thread).messages if m.seq == receipt.seq)
    return found.status, found.error


def state(slot: Slot, thread: str) -> dict[str, Any]:
    from producers.cli.state import thread_in_full

    found: dict[str, Any] = thread_in_full(thread)["state"]
    return found


def test_a_dead_refund_that_a_person_made_is_amended_retried_and_not_made_again(
    slot: Slot, fleet: Fleet, shop: Shop
) -> None:
    """dead → amended → retried: no call at the shop, and the rest of the graph runs."""
    order = shop.new_order()
    shop.fault("refunds", "refuse", order_id=order)
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    assert fleet.status(thread).status == "failed"
    shop.clear_faults()
    calls = shop.calls("refunds", order)
    values = {"refund_id": "by-hand-1", "outcome": "refunded"}
    assert amended(fleet, slot, thread, "process_refund", values) == ("done", None)
    assert fleet.status(thread).status == "failed"
    fleet.retry(thread)
    drain(slot, thread)
    found = fleet.status(thread)
    assert (found.status, [m.status for m in found.messages]) == ("done", ["done", "done"])
    assert shop.calls("refunds", order) == calls and shop.refunds(order) == 0
    assert state(slot, thread)["refund_id"] == "by-hand-1"
    assert [e.name for e in found.effects if e.state == "done"] == ["notify.user"]


def test_a_refund_amended_after_its_approval_is_not_made_again(
    slot: Slot, fleet: Fleet, shop: Shop
) -> None:
    """The interrupted message may be an answer."""
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    shop.fault("refunds", "refuse", order_id=order)
    fleet.answer(thread, None, "approved")
    drain(slot, thread)
    assert fleet.status(thread).status == "failed"
    shop.clear_faults()
    values = {"refund_id": "by-hand-2", "outcome": "refunded"}
    assert amended(fleet, slot, thread, "process_refund", values) == ("done", None)
    fleet.retry(thread)
    drain(slot, thread)
    assert fleet.status(thread).status == "done"
    assert shop.refunds(order) == 0


def test_an_unknown_node_or_value_is_refused_and_changes_nothing(slot: Slot, fleet: Fleet) -> None:
    """The message is dropped with the reason; the thread stands as before."""
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    before = state(slot, thread)
    status, error = amended(fleet, slot, thread, "chekced", {})
    assert status == "dropped" and error is not None and "did you mean 'checked'" in error
    status, error = amended(fleet, slot, thread, "checked", {"stepz": []})
    assert status == "dropped" and error is not None and "'stepz'" in error
    assert fleet.status(thread).status == "failed"
    assert state(slot, thread) == before


def test_values_that_the_graph_does_not_take_are_refused_and_change_nothing(
    slot: Slot, fleet: Fleet
) -> None:
    """A value that the state's reducer can't take is told, and the old state stays."""
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    status, error = amended(fleet, slot, thread, "checked", {"steps": 5})
    assert status == "dropped" and error is not None and "does not take" in error
    assert state(slot, thread)["steps"] == ["first", "told"]
    assert amended(fleet, slot, thread, "checked", {"steps": ["by hand"]}) == ("done", None)


def test_a_node_that_has_made_an_effect_is_not_amended(
    slot: Slot, fleet: Fleet, shop: Shop
) -> None:
    """Its record would be forgotten: the reason names the effect and what to do."""
    thread = begun(fleet, slot, "sequence", names=["done-before"], broken=["told"])
    status, error = amended(fleet, slot, thread, "told", {"steps": ["by hand"]})
    assert status == "dropped" and error is not None
    assert "effect tell" in error and "fleet retry" in error
    assert fleet.status(thread).status == "failed"


def test_effects_of_steps_that_are_over_are_no_obstacle(slot: Slot, fleet: Fleet) -> None:
    """Only what the pending step has done could be forgotten."""
    thread = begun(fleet, slot, "sequence", names=["earlier"], broken=["checked"])
    assert amended(fleet, slot, thread, "checked", {"steps": ["by hand"]}) == ("done", None)
    fleet.retry(thread)
    drain(slot, thread)
    assert state(slot, thread)["steps"] == ["first", "told", "by hand", "last"]
    assert [e.attempts for e in fleet.status(thread).effects] == [1]


def test_an_effect_in_doubt_is_to_be_settled_first(
    slot: Slot, fleet: Fleet, database: Database
) -> None:
    """Amending would forget that it may have happened."""
    thread = begun(fleet, slot, "sequence", names=["doubtful"], broken=["told"])
    database.fetch("UPDATE fleet.effects SET state = 'intent' WHERE thread_id = %s", thread)
    status, error = amended(fleet, slot, thread, "told", {})
    assert status == "dropped" and error is not None and "fleet resolve" in error


def test_a_node_beside_others_is_amended_without_touching_them(slot: Slot, fleet: Fleet) -> None:
    """The other task's effect is neither forgotten nor made again."""
    thread = begun(fleet, slot, "many", names=["beside"], broken=["checked"])
    assert fleet.status(thread).status == "failed"
    assert amended(fleet, slot, thread, "checked", {"steps": ["by hand"]}) == ("done", None)
    fleet.retry(thread)
    drain(slot, thread)
    found = fleet.status(thread)
    assert found.status == "done"
    assert sorted(state(slot, thread)["steps"]) == ["by hand", "first", "last", "told"]
    assert [(e.state, e.attempts) for e in found.effects] == [("done", 1)]


def test_another_node_than_those_side_by_side_is_refused(slot: Slot, fleet: Fleet) -> None:
    """A new checkpoint would drop the work of those that stand there."""
    thread = begun(fleet, slot, "many", names=["beside"], broken=["checked"])
    status, error = amended(fleet, slot, thread, "first", {})
    assert status == "dropped" and error is not None and "at once" in error


def test_one_of_two_questions_is_amended_and_the_other_stays_open(slot: Slot, fleet: Fleet) -> None:
    """The thread goes on when the other is answered."""
    thread = begun(fleet, slot, "asks")
    asked = {q.payload: q.question_id for q in fleet.status(thread).questions}
    assert amended(fleet, slot, thread, "left", {"steps": ["left by hand"]}) == ("done", None)
    found = fleet.status(thread)
    assert (found.status, [q.payload for q in found.questions]) == ("waiting", ["right?"])
    fleet.answer(thread, asked["right?"], "yes")
    drain(slot, thread)
    assert fleet.status(thread).status == "done"
    assert sorted(state(slot, thread)["steps"]) == ["first", "last", "left by hand", "right yes"]


def test_a_thread_that_waits_goes_on_from_the_amendment(
    slot: Slot, fleet: Fleet, shop: Shop
) -> None:
    """Its question is superseded, and the amendment's own turn runs what follows."""
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    values = {"approval": "rejected", "outcome": "rejected", "note": "by phone"}
    assert amended(fleet, slot, thread, "require_approval", values) == ("done", None)
    found = fleet.status(thread)
    assert (found.status, found.questions) == ("done", [])
    assert shop.refunds(order) == 0


def test_a_breakpoint_is_not_passed_by_an_amendment(slot: Slot, fleet: Fleet) -> None:
    """It asks again, at the amended checkpoint."""
    thread = begun(fleet, slot, "stops")
    before = fleet.status(thread).questions[0]
    assert amended(fleet, slot, thread, "checked", {"steps": ["by hand"]}) == ("done", None)
    after = fleet.status(thread).questions
    assert len(after) == 1 and after[0].question_id != before.question_id
    assert "last" not in state(slot, thread)["steps"]


def test_an_amendment_whose_worker_died_is_applied_once(
    slot: Slot, fleet: Fleet, database: Database
) -> None:
    """What an attempt has committed is seen by the next one."""
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    receipt = fleet.amend(thread, "checked", {"steps": ["by hand"]})
    drain(slot, thread)
    # As if the worker had died between the keeper's flush and the end of the turn.
    database.fetch(
        "UPDATE fleet.messages SET status = 'claimed' WHERE thread_id = %s AND seq = %s",
        thread,
        receipt.seq,
    )
    drain(slot, thread)
    assert state(slot, thread)["steps"] == ["first", "told", "by hand"]
    fleet.retry(thread)
    drain(slot, thread)
    assert state(slot, thread)["steps"] == ["first", "told", "by hand", "last"]


def test_a_message_that_has_not_begun_still_brings_its_input(
    slot: Slot, fleet: Fleet, database: Database
) -> None:
    """An amendment before it is not taken for its beginning."""
    thread = begun(fleet, slot, "sequence")
    fleet.send(thread, {"names": [], "steps": ["more"]})
    database.fetch(
        "UPDATE fleet.messages SET status = 'dead' WHERE thread_id = %s AND kind = 'input'", thread
    )
    assert amended(fleet, slot, thread, "last", {"steps": ["by hand"]}) == ("done", None)
    fleet.retry(thread)
    drain(slot, thread)
    steps = state(slot, thread)["steps"]
    assert steps[4:] == ["by hand", "more", "first", "told", "checked", "last"]


def test_a_thread_whose_graph_lost_its_node_moves_on(
    slot: Slot, fleet: Fleet, database: Database, shop: Shop
) -> None:
    """The amendment goes before the mail that waits, which then goes on."""
    order = shop.new_order("1500.00")
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    drain(slot, thread)
    question = fleet.status(thread).questions[0]
    graph = slot.graph("refund", {}).graph
    asks = graph.nodes.pop("require_approval")
    fleet.answer(thread, question.question_id, "approved")
    drain(slot, thread)
    assert fleet.status(thread).status == "incompatible"
    status, error = amended(fleet, slot, thread, "require_approval", {"approval": "approved"})
    assert status == "dropped" and fleet.status(thread).status == "incompatible", error
    values = {"approval": "automatic"}
    assert amended(fleet, slot, thread, "load_order", values) == ("done", None)
    graph.nodes["require_approval"] = asks
    assert fleet.status(thread).status == "done"
    assert shop.refunds(order) == 1


def test_what_can_be_told_at_the_door_is_told_there(
    slot: Slot, fleet: Fleet, database: Database
) -> None:
    """Values that are no object, a thread that is not there, and one that is cancelled."""
    thread = begun(fleet, slot, "sequence", broken=["checked"])
    with pytest.raises(InvalidPayload):
        fleet.amend(thread, "checked", [1])  # type: ignore[arg-type]
    with pytest.raises(UnknownThread):
        fleet.amend("sequence:nobody", "checked", {})
    fleet.cancel(thread)
    with pytest.raises(NothingToDo):
        fleet.amend(thread, "checked", {})
    assert len(fleet.status(thread).messages) == 1
