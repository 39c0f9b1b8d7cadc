"""The session is lost at each step of a turn, and the process lives on."""

from collections.abc import Iterator

import pytest

from infra import failpoints
from producers import Fleet
from tests.acceptance.standing import INPUT
from tests.harness import Shop, eventually
from workers.drain import drain
from workers.slot import Slot

POINTS = (
    *("claim.before_lock", "claim.after_commit", "claim.after_lock", "turn.superstep"),
    *("saver.mid_put", "effect.before_intent", "barrier.before_intent", "barrier.after_intent"),
    *("effect.after_intent", "effect.before_call", "effect.after_call", "effect.after_result"),
    *("turn.before_commit", "turn.before_unlock", "turn.after_commit", "drain.before_next"),
)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")
    failpoints.on_disconnect(None)


@pytest.mark.parametrize("point", POINTS)
def test_a_turn_that_loses_its_session_is_done_by_the_next_claim(
    slot: Slot, fleet: Fleet, shop: Shop, point: str
) -> None:
    """The refund is made once, whatever had been written until then."""
    order = shop.new_order()
    thread = fleet.submit("refund", order, INPUT).thread_id
    failpoints.arm(f"{point}=disconnect:::1")
    drain(slot, thread)
    failpoints.arm("")
    eventually(lambda: drain(slot, thread) or fleet.status(thread).status == "done")
    assert fleet.status(thread).status == "done"
    assert shop.refunds(order) == 1
    assert {effect.state for effect in fleet.status(thread).effects} == {"done"}
