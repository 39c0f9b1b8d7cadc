"""Effects on real servers: each happens once, whatever dies, fails or waits in between."""

import itertools
import time
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from producers import Fleet
from producers.status import ThreadStatus
from tests.harness import ROOT, Database, Shop, eventually
from tests.worker_processes import Worker, Workers

GRAPHS = ROOT / "tests" / "graphs" / "langgraph.json"
AMOUNT = "141.50"

_numbers = itertools.count(time.time_ns())


@pytest.fixture
def fleet_settings(fleet_settings: dict[str, Any], database: Database) -> dict[str, Any]:
    """With the graphs of tests/graphs."""
    database.register(GRAPHS)
    return fleet_settings | {"graphs_file": GRAPHS, "backoff_base": 0.2}


def new_user() -> str:
    """Somebody whom no other test of the session notifies."""
    return f"u{next(_numbers)}"


def told(shop: Shop, user: str) -> list[str]:
    """What the user was told, in alphabetical order; each call for it must have been one."""
    return sorted(n["text"] for n in shop.books()["notifications"] if n["user_id"] == user)


def calls_to(shop: Shop, user: str) -> int:
    return int(shop.books()["calls"]["notifications"]["by_order"].get(user, 0))


def result_of(status: ThreadStatus) -> Any:
    """What was recorded of the thread's one effect."""
    (effect,) = status.effects
    assert effect.state == "done" and effect.stored is not None
    return JsonPlusSerializer().loads_typed(effect.stored)


def move_clock(database: Database, seconds: float) -> None:
    database.fetch("SELECT fleet.move_clock(%s * interval '1 s')", seconds)


def later(fleet: Fleet, thread: str) -> ThreadStatus:
    """The thread once its message waits for a later time."""

    def waits() -> ThreadStatus | None:
        status = fleet.status(thread)
        message = status.messages[0]
        due_in = (message.available_at - status.updated_at).total_seconds()
        return status if message.status == "pending" and due_in > 2 else None

    return eventually(waits)


def kill_at_the_shop(shop: Shop, about: str, worker: Worker, workers: Workers) -> None:
    """Kill the worker while its call about this, which has acted, is held; start another."""
    eventually(lambda: shop.held(about))
    worker.kill()
    workers.start(concurrency=1)


# effect → interrupt → effect in one node


def test_effects_around_an_interrupt_are_called_once(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """The node runs twice, each of its two effects once."""
    workers.start(concurrency=1)
    user = new_user()
    thread = fleet.submit("effects_interrupt", user, {"user_id": user}).thread_id
    assert fleet.wait(thread, 10).status == "waiting"
    assert told(shop, user) == ["before"]
    fleet.answer(thread, None, "yes")
    assert fleet.wait(thread, 10).status == "done"
    assert told(shop, user) == ["after yes", "before"]
    assert calls_to(shop, user) == 2


def test_effects_around_an_interrupt_happen_once_though_each_is_killed(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """A worker killed at the shop before the question and another after the answer."""
    worker = workers.start(concurrency=1)
    user = new_user()
    for text in ("before", "after"):
        shop.fault("notifications", "hold_after", order_id=f"{user} {text}")
    thread = fleet.submit("effects_interrupt", user, {"user_id": user}).thread_id
    kill_at_the_shop(shop, f"{user} before", worker, workers)
    assert fleet.wait(thread, 10).status == "waiting"
    fleet.answer(thread, None, "yes")
    kill_at_the_shop(shop, f"{user} after yes", [*workers][-1], workers)
    assert fleet.wait(thread, 10).status == "done"
    assert told(shop, user) == ["after yes", "before"]
    assert calls_to(shop, user) == 4


# Parallel and async nodes


def test_parallel_nodes_have_one_effect_each_though_killed_in_the_middle(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Killed while one call is held and the others are done: only that one is sent again."""
    worker = workers.start(concurrency=1)
    users = [new_user() for _ in range(4)]
    shop.fault("notifications", "hold_after", order_id=users[1])
    before = shop.books()["calls"]["notifications"]["by_order"]
    thread = fleet.submit("parallel", users[0], {"names": users}).thread_id
    everybody = [*users, "left", "right"]

    def new_calls() -> dict[str, int]:
        seen = shop.books()["calls"]["notifications"]["by_order"]
        return {user: seen.get(user, 0) - before.get(user, 0) for user in everybody}

    eventually(lambda: new_calls() == dict.fromkeys(everybody, 1))
    kill_at_the_shop(shop, f"{users[1]} hello", worker, workers)
    assert fleet.wait(thread, 10).status == "done"
    assert [told(shop, user) for user in users] == [["hello"]] * 4
    assert len({n["request_id"] for n in shop.books()["notifications"]}) == len(
        shop.books()["notifications"]
    )
    assert new_calls()[users[1]] == 2
    assert {e.state for e in fleet.status(thread).effects} == {"done"}
    assert len(fleet.status(thread).effects) == 6


@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_async_effects_happen_once(
    killed: bool, fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Two at once, a question, and one on each side of it; with and without a kill."""
    worker = workers.start(concurrency=1)
    user = new_user()
    if killed:
        shop.fault("notifications", "hold_after", order_id=f"{user} first")
    thread = fleet.submit("async_nodes", user, {"user_id": user}).thread_id
    if killed:
        kill_at_the_shop(shop, f"{user} first", worker, workers)
    assert fleet.wait(thread, 10).status == "waiting"
    fleet.answer(thread, None, "yes")
    assert fleet.wait(thread, 10).status == "done"
    assert told(shop, user) == ["after yes", "before", "first", "second"]
    if not killed:
        assert calls_to(shop, user) == 4


# Lookup and park: in doubt after a kill


def test_a_call_that_a_lookup_finds_is_not_made_again(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Killed after the shop has paid: asked once, and its receipt is the result."""
    workers.start(failpoints="effect.after_call=kill")
    order = shop.new_order(AMOUNT)
    thread = fleet.submit("lookup", order, {"amount": AMOUNT}).thread_id
    status = fleet.wait(thread, 10)
    assert status.status == "done"
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)
    assert result_of(status)["refund_id"] == shop.books(order)["refunds"][0]["refund_id"]
    assert len(workers.hits("effect.after_call")) == 1


def test_a_lookup_that_finds_nothing_is_believed_only_after_settle(
    fleet: Fleet, shop: Shop, database: Database, workers: Workers
) -> None:
    """Killed before the call: asked, waited for, asked again, and only then called."""
    workers.start(failpoints="effect.after_intent=kill")
    order = shop.new_order(AMOUNT)
    thread = fleet.submit("lookup", order, {"amount": AMOUNT}).thread_id
    status = later(fleet, thread)
    request_id = status.effects[0].request_id
    assert status.messages[0].failures == 0
    assert shop.books()["calls"]["lookups"]["by_key"][request_id] == 1
    assert shop.calls("refunds", order) == 0
    move_clock(database, 10)
    assert fleet.wait(thread, 10).status == "done"
    assert shop.books()["calls"]["lookups"]["by_key"][request_id] == 2
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


def in_doubt(
    fleet: Fleet, shop: Shop, database: Database, workers: Workers, failpoint: str
) -> ThreadStatus:
    """A parked thread that was killed at the failpoint, once a person is asked."""
    workers.start(failpoints=f"{failpoint}=kill")
    order = shop.new_order(AMOUNT)
    thread = fleet.submit("park", order, {"amount": AMOUNT}).thread_id
    assert later(fleet, thread).messages[0].failures == 0
    move_clock(database, 10)
    status = fleet.wait(thread, 10)
    assert status.status == "in_doubt"
    return status


def test_a_parked_effect_that_happened_is_not_called_again(
    fleet: Fleet, shop: Shop, database: Database, workers: Workers
) -> None:
    """Resolved as happened, at a shop that honours no keys: one call, the result as given."""
    shop.fault("refunds", "ignore_keys")
    status = in_doubt(fleet, shop, database, workers, "effect.after_call")
    order, request_id = status.key, status.effects[0].request_id
    assert shop.calls("refunds", order) == 1
    receipt = {"refund_id": "rf_by_hand", "status": "succeeded"}
    fleet.resolve(status.thread_id, request_id, True, receipt)
    status = fleet.wait(status.thread_id, 10)
    assert status.status == "done"
    assert result_of(status) == receipt
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


def test_a_parked_effect_that_did_not_happen_is_called_once(
    fleet: Fleet, shop: Shop, database: Database, workers: Workers
) -> None:
    """Killed before the call and resolved as not happened: the thread goes on and calls."""
    status = in_doubt(fleet, shop, database, workers, "effect.after_intent")
    order = status.key
    assert shop.calls("refunds", order) == 0
    fleet.resolve(status.thread_id, status.effects[0].request_id, False)
    assert fleet.wait(status.thread_id, 10).status == "done"
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


def test_a_parked_call_whose_reply_is_lost_is_not_sent_again(
    fleet: Fleet, shop: Shop, database: Database, workers: Workers
) -> None:
    """The connection drops after the shop acted, keys ignored: a person is asked after one call."""
    workers.start(concurrency=1)
    order = shop.new_order(AMOUNT)
    shop.fault("refunds", "ignore_keys", order_id=order)
    shop.fault("refunds", "drop_after", order_id=order, count=1)
    thread = fleet.submit("park", order, {"amount": AMOUNT}).thread_id
    later(fleet, thread)
    move_clock(database, 10)
    assert fleet.wait(thread, 10).status == "in_doubt"
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


# The shop in trouble


def test_a_shop_that_is_down_for_a_while_refunds_once_when_it_is_back(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Down at the start: the turn comes back later, counted as failure and not as crash."""
    workers.start(concurrency=1)
    order = shop.new_order()
    shop.kill()
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    eventually(lambda: fleet.status(thread).messages[0].failures >= 1)
    shop.start()
    status = fleet.wait(thread, 15)
    assert status.status == "done"
    assert status.messages[0].crashes == 0
    assert shop.refunds(order) == 1


def test_a_shop_that_dies_after_it_has_paid_refunds_once(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Killed with our call held: the same request id is sent until the shop is back."""
    workers.start(concurrency=1)
    order = shop.new_order()
    shop.fault("refunds", "hold_after", order_id=order)
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    eventually(lambda: shop.held(order))
    shop.kill()
    shop.start()
    assert fleet.wait(thread, 15).status == "done"
    assert shop.refunds(order) == 1
    assert len(shop.books(order)["calls"]["refunds"]["by_key"]) == 1


def test_a_short_retry_after_is_waited_for_in_the_turn(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """429 with 2 s: the second call comes no earlier, in the same turn."""
    workers.start(concurrency=1)
    order = shop.new_order()
    shop.fault("refunds", "busy_429", order_id=order, count=1, retry_after=2)
    began = time.time()
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    status = fleet.wait(thread, 15)
    assert (status.status, status.messages[0].failures) == ("done", 0)
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 2)
    assert shop.books(order)["refunds"][0]["at"] - began >= 2


def test_a_long_retry_after_frees_the_slot(
    fleet: Fleet, shop: Shop, database: Database, workers: Workers
) -> None:
    """429 with a minute: the message is due a minute later, and another is served meanwhile."""
    workers.start(concurrency=1)
    order, other = shop.new_order(), shop.new_order()
    shop.fault("refunds", "busy_429", order_id=order, count=1, retry_after=60)
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    status = later(fleet, thread)
    assert 50 < (status.messages[0].available_at - status.updated_at).total_seconds() < 70
    other_thread = fleet.submit("refund", other, {"user_id": "u_42"}).thread_id
    assert fleet.wait(other_thread, 10).status == "done"
    move_clock(database, 70)
    assert fleet.wait(thread, 10).status == "done"
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 2)


def test_a_keyed_effect_of_two_threads_at_once_happens_once(
    fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Both end with the one receipt; the second waits for the first and is not counted."""
    workers.start(concurrency=2)
    order = shop.new_order(AMOUNT)
    shop.fault("refunds", "hold_after", order_id=order)
    wanted = {"order_id": order, "amount": AMOUNT}
    first = fleet.submit("keyed", f"{order}-1", wanted).thread_id
    eventually(lambda: shop.held(order))
    second = fleet.submit("keyed", f"{order}-2", wanted).thread_id
    eventually(lambda: fleet.status(second).epoch > 0)
    eventually(lambda: fleet.status(second).messages[0].status == "pending")
    shop.release(order)
    ended = [fleet.wait(thread, 10) for thread in (first, second)]
    assert [s.status for s in ended] == ["done", "done"]
    assert [(m.crashes, m.failures) for s in ended for m in s.messages] == [(0, 0)] * 2
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)
    paid = shop.books(order)["refunds"][0]["refund_id"]
    assert [result_of(s)["refund_id"] for s in ended] == [paid, paid]
