"""Doubt under fire, at a shop that honours no request ids: whatever comes back late, looks
too early or has been forgotten, each order is refunded once.

How a person settles a doubt, and effects that resend: tests/acceptance/test_effects_live.py
and tests/acceptance/test_fence.py.
"""

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from producers import Fleet
from producers.status import ThreadStatus
from tests.harness import ROOT, Database, Shop, eventually
from tests.worker_processes import Workers

GRAPHS = ROOT / "tests" / "graphs" / "langgraph.json"
AMOUNT = "141.50"
#: Longer than the settle of tests/graphs/paying.py.
SETTLED = 10.0
RECEIPT = {"refund_id": "rf_by_hand", "status": "succeeded"}
policies = pytest.mark.parametrize("policy", ["park", "lookup"])


@pytest.fixture
def fleet_settings(fleet_settings: dict[str, Any], database: Database) -> dict[str, Any]:
    database.register(GRAPHS)
    return fleet_settings | {"graphs_file": GRAPHS, "sweep_interval": 0.1}


@pytest.fixture
def submitted(fleet: Fleet, shop: Shop) -> Callable[[str], tuple[str, str]]:
    """Submits an order; gives (order, thread)."""

    def submit(graph: str) -> tuple[str, str]:
        order = shop.new_order(AMOUNT)
        shop.fault("refunds", "ignore_keys", order_id=order)
        wanted = {"user_id": "u_42"} if graph == "refund" else {"amount": AMOUNT}
        return order, fleet.submit(graph, order, wanted).thread_id

    return submit


def taken_over(fleet: Fleet, thread: str) -> ThreadStatus:
    """Once another has the message and found that it must wait."""

    def waits() -> ThreadStatus | None:
        found = fleet.status(thread)
        (message,) = found.messages
        later = message.available_at > message.accepted_at
        return found if message.status == "pending" and later else None

    return eventually(waits, 20)


def move_clock(database: Database, seconds: float) -> None:
    database.fetch("SELECT fleet.move_clock(%s * interval '1 s')", seconds)


def settle(fleet: Fleet, thread: str, *, happened: bool) -> ThreadStatus:
    """A person says what became of the parked effect, where one is asked; the end."""
    found = fleet.wait(thread, 20)
    if found.status == "in_doubt":
        (effect,) = found.effects
        fleet.resolve(thread, effect.request_id, happened, RECEIPT if happened else None)
        found = fleet.wait(thread, 20)
    return found


@policies
def test_a_turn_stopped_before_its_call_does_not_call_when_it_comes_back(
    policy: str, submitted: Any, fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """Its intent is there, nobody saw a call, and another has made it by then."""
    worker = workers.start(concurrency=2, turn_timeout=3, failpoints="effect.after_intent=stop")
    order, thread = submitted(policy)
    ((pid, *_),) = eventually(lambda: workers.hits("effect.after_intent"), 20)
    try:
        taken_over(fleet, thread)
        assert shop.calls("refunds", order) == 0
        move_clock(database, SETTLED)
        assert settle(fleet, thread, happened=False).status == "done"
        assert shop.calls("refunds", order) == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: f"turn of {thread} lost" in worker.log(), 20)
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


@policies
def test_a_call_under_way_is_waited_for_though_nothing_is_found(
    policy: str, submitted: Any, fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """Its process is dead and the shop still at it: "not found" is not believed, nobody asked."""
    worker = workers.start(concurrency=1)
    shop.fault("refunds", "slow", seconds=60)
    order, thread = submitted(policy)
    eventually(lambda: order in shop.books()["calls"]["refunds"]["by_order"], 20)
    worker.kill_pool_child()
    found = taken_over(fleet, thread)
    assert found.status != "in_doubt"
    lookups = shop.books()["calls"]["lookups"]["by_key"].get(found.effects[0].request_id, 0)
    assert lookups == (1 if policy == "lookup" else 0)
    assert shop.refunds(order) == 0
    # What it waits for comes to its end, which nobody is there to hear.
    shop.clear_faults()
    eventually(lambda: shop.refunds(order) == 1)
    move_clock(database, SETTLED)
    assert settle(fleet, thread, happened=True).status == "done"
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


@policies
def test_a_turn_that_loses_its_session_before_its_call_has_called_once(
    policy: str, submitted: Any, fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """It does call, within its intent's commit's freshness: whoever takes over looks or waits."""
    workers.start(concurrency=2, failpoints="effect.after_intent=disconnect")
    order, thread = submitted(policy)
    if policy == "park":
        taken_over(fleet, thread)
        move_clock(database, SETTLED)
    assert settle(fleet, thread, happened=shop.refunds(order) == 1).status == "done"
    assert len(workers.hits("effect.after_intent")) == 1
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


def test_a_key_that_the_outside_has_forgotten_is_not_sent_again(
    submitted: Any, fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """A day and an hour after the call that died: a person is asked, and the rest goes on."""
    worker = workers.start(concurrency=1)
    shop.fault("refunds", "hold_after", count=1)
    order, thread = submitted("refund")
    eventually(lambda: shop.held(order), 20)
    worker.kill()
    move_clock(database, 25 * 3600)
    workers.start(concurrency=1)
    found = fleet.wait(thread, 20)
    assert found.status == "in_doubt"
    assert "its request id is honoured for 86400 s" in (found.last_error or "")
    assert settle(fleet, thread, happened=True).status == "done"
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)
    told = [n["text"] for n in shop.books()["notifications"] if f" order {order} " in n["text"]]
    assert len(told) == 1
