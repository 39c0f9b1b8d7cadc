"""Many starts at once: all of a call or nothing."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from producers import (
    Fleet,
    InvalidInput,
    InvalidKey,
    InvalidPayload,
    MessageConflict,
    ProducerError,
    Start,
    ThreadExists,
    UnknownGraph,
)
from tests.harness import Broker, Database, eventually
from tests.integration.mailbox import INPUT, accepted


def test_many_are_accepted_in_the_order_given(
    fleet: Fleet, database: Database, broker: Broker
) -> None:
    """1,100 starts in three forms; receipts in order, wake-ups up to the limit."""
    items = [
        *[("refund", f"a{n}", INPUT) for n in range(1000)],
        *[{"graph": "refund", "key": f"b{n}", "input": INPUT} for n in range(50)],
        *[Start(graph="refund", key=f"c{n}", input=INPUT) for n in range(50)],
    ]
    receipts = fleet.submit_many(items)
    keys = [f"a{n}" for n in range(1000)] + [f"b{n}" for n in range(50)]
    keys += [f"c{n}" for n in range(50)]
    assert [r.thread_id for r in receipts] == [f"refund:{key}" for key in keys]
    assert all(r.published for r in receipts)
    assert accepted(database) == 1100
    assert 0 < broker.client.llen("fleet") <= 16


def test_500_cost_one_commit(fleet: Fleet, database: Database) -> None:
    """A batch is one transaction."""
    fleet.submit("refund", "warm", INPUT)
    horizon = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = database.value(horizon)
    fleet.submit_many([("refund", f"k{n}", INPUT) for n in range(500)])
    # Other tests' databases live on the same server only in other sessions of ours.
    assert database.value(horizon) - before <= 3


BAD_ITEMS: dict[str, tuple[Any, type[ProducerError]]] = {
    "key": (("refund", "", INPUT), InvalidKey),
    "payload": (("refund", "k", {"user_id": "\x00"}), InvalidPayload),
    "schema": (("refund", "k", {}), InvalidInput),
    "graph": (("nope", "k", INPUT), UnknownGraph),
    "form": (("refund", "k"), InvalidPayload),
    "conflict": (
        {"graph": "refund", "key": "old", "input": {"user_id": "z"}, "message_id": "m"},
        MessageConflict,
    ),
    "exists": (
        {"graph": "refund", "key": "old", "input": INPUT, "on_existing": "reject"},
        ThreadExists,
    ),
}


@pytest.mark.parametrize("many", [3, 700])
@pytest.mark.parametrize(("bad", "error"), BAD_ITEMS.values(), ids=BAD_ITEMS.keys())
def test_one_bad_item_refuses_the_call(
    fleet: Fleet, database: Database, broker: Broker, bad: Any, error: type, many: int
) -> None:
    """Nothing of it is accepted or published, and the error names the item."""
    fleet.submit("refund", "old", INPUT, message_id="m")
    broker.client.delete("fleet")
    items: list[Any] = [("refund", f"k{n}", INPUT) for n in range(many)]
    items.insert(2, bad)
    with pytest.raises(error) as caught:
        fleet.submit_many(items)
    assert caught.value.index == 2 and str(caught.value).startswith("Item 2: ")
    assert accepted(database) == 1
    assert broker.client.llen("fleet") == 0


def test_two_payloads_under_one_id_in_a_call_are_a_conflict(
    fleet: Fleet, database: Database
) -> None:
    """Found before anything is sent."""
    twice = [
        {"graph": "refund", "key": "k", "input": {"user_id": user}, "message_id": "m"}
        for user in ("a", "b")
    ]
    with pytest.raises(MessageConflict):
        fleet.submit_many(twice)
    assert accepted(database) == 0


def test_calls_with_the_same_threads_do_not_deadlock(database: Database) -> None:
    """Whatever the order in each call."""
    items = [
        {"graph": "refund", "key": f"k{n}", "input": INPUT, "message_id": "m"} for n in range(300)
    ]
    with Fleet(database.url) as fleet, ThreadPoolExecutor(4) as pool:
        calls = [items, items[::-1], items[150:] + items[:150], items[::-1]]
        outcomes = [r.outcome for receipts in pool.map(fleet.submit_many, calls) for r in receipts]
    assert outcomes.count("accepted") == 300 == accepted(database)
    # Sessions report what they met when they end.
    left = """SELECT count(*) = 0 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'fleet-client'"""
    assert eventually(lambda: database.value(left))
    met = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert database.value(met) == 0


def test_no_items_are_no_work(fleet: Fleet) -> None:
    """An empty call is fine."""
    assert fleet.submit_many([]) == []
