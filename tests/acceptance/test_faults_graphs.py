"""What others met in LangGraph, Postgres and production, done to a fleet: see docs/faults.md.

Two workers with one slot each stand for the module, one of them with LangGraph's strict mode.
"""

import itertools
import json
import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.devservers import Stack
from producers import Fleet
from producers.local.processes import slot_pid
from tests.acceptance.standing import (
    BELOW,
    INPUT,
    Standing,
    at_once,
    crashes,
    forks,
    held_orders,
    idle_in_transaction,
    is_at_rest,
    refunded_and_notified_once,
    standing,
)
from tests.harness import ROOT, Broker, Database, Databases, Shop, eventually
from tests.worker_processes import Workers

#: Seconds.
DELAY = 4.0

_users = itertools.count(time.time_ns())


def graphs_file(folder: Path) -> Path:
    """Those of tests/graphs/faults.py and others; of one kind there is one for each worker."""
    mine = ("asking", "bare", "failing", "large")
    graphs: dict[str, Any] = {name: f"{ROOT}/tests/graphs/faults.py:{name}" for name in mine}
    graphs |= {n: f"{ROOT}/tests/graphs/{n}.py:graph" for n in ("agent_refund", "parallel")}
    typed = f"{ROOT}/tests/graphs/faults.py:typed"
    graphs |= {queue: {"path": typed, "queue": queue} for queue in ("loose", "strict")}
    path = folder / "langgraph.json"
    path.write_text(json.dumps({"graphs": graphs | {"refund": "graphs.refund:graph"}}))
    return path


@pytest.fixture(scope="module")
def two_workers(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("faults")
    graphs = graphs_file(folder)
    with standing(databases, stack, _shop, folder, graphs_file=graphs, backoff_base=0.1) as made:
        made.database.register(graphs)
        options: dict[str, Any] = {"concurrency": 1, "wait": False}
        started = [made.workers.start("-Q", "fleet,loose", **options)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LANGGRAPH_STRICT_MSGPACK", "true")
            started.append(made.workers.start("-Q", "fleet,strict", **options))
        for worker in started:
            made.workers.wait_ready(worker)
        yield made


@pytest.fixture
def it(two_workers: Standing, shop: Shop) -> Iterator[Standing]:
    yield two_workers
    eventually(lambda: is_at_rest(two_workers.database, two_workers.broker))


def new_user() -> str:
    """Somebody whom no other test of the session notifies."""
    return f"f{next(_users)}"


def told(shop: Shop, user: str) -> list[str]:
    return sorted(n["text"] for n in shop.books()["notifications"] if n["user_id"] == user)


def kill_holder(it: Standing, thread: str) -> None:
    """The process that has the thread's turn."""
    os.kill(slot_pid(it.fleet.status(thread).owner or ""), signal.SIGKILL)


def replace_all(it: Standing) -> None:
    """Every process of every pool, by kill -9."""
    for worker in it.workers:
        for pid in worker.pool_pids():
            os.kill(pid, signal.SIGKILL)


# Questions


def test_tools_side_by_side_that_ask_are_answered_one_by_one(it: Standing) -> None:
    """Each by its own id, in the other order, by processes that were not there before; an
    answer runs its own tool only, and the tool that asks nothing is called once."""
    user = new_user()
    thread = it.fleet.submit("asking", user, {"messages": user}).thread_id
    asked = it.fleet.wait(thread, 30)
    questions = {q.payload["about"]: q.question_id for q in asked.questions}
    assert sorted(questions) == ["first", "second"]
    assert told(it.shop, user) == ["third"]
    replace_all(it)
    it.fleet.answer(thread, questions["second"], "two")
    left = it.ends(thread, "waiting")
    assert [q.question_id for q in left.questions] == [questions["first"]]
    assert told(it.shop, user) == ["second two", "third"]
    replace_all(it)
    it.fleet.answer(thread, questions["first"], "one")
    it.ends(thread)
    assert told(it.shop, user) == ["first one", "second two", "third"]
    assert it.shop.books()["calls"]["notifications"]["by_order"][user] == 3


def test_an_approved_tool_is_not_called_again_on_later_turns(it: Standing) -> None:
    """Nor after its processes were replaced; its question stays answered."""
    order = it.shop.new_order(BELOW)
    thread = it.fleet.submit("agent_refund", order, {"messages": order}).thread_id
    question = it.fleet.wait(thread, 30).question
    assert question is not None
    it.fleet.answer(thread, question.question_id, "approved")
    it.ends(thread)
    replace_all(it)
    for text in ("thanks", "and now?", "bye"):
        it.fleet.send(thread, {"messages": text})
        it.ends(thread)
    assert (it.shop.refunds(order), it.shop.calls("refunds", order)) == (1, 1)
    sql = "SELECT status FROM fleet.questions WHERE thread_id = %s"
    assert it.database.fetch(sql, thread) == [("answered",)]


# State


@pytest.mark.parametrize("mode", ["loose", "strict"])
def test_objects_in_the_state_are_what_they_were_after_a_pause(it: Standing, mode: str) -> None:
    """Enum, dataclass and model, read by a process that was not there before; also with
    LANGGRAPH_STRICT_MSGPACK, which lets only known classes come back."""
    thread = it.fleet.submit(mode, "A", {}).thread_id
    it.ends(thread, "waiting")
    replace_all(it)
    it.fleet.answer(thread, None, "yes")
    it.ends(thread)
    sql = """SELECT checkpoint->'channel_values'->>'seen' FROM checkpoints
        WHERE thread_id = %s ORDER BY checkpoint_id DESC LIMIT 1"""
    address = "Address(street='A', colours=[<Colour.RED: 'red'>])"
    person = f"Person(name='P', favourite=<Colour.RED: 'red'>, addresses=[{address}])"
    assert it.database.value(sql, thread) == f"[<Colour.RED: 'red'>, {person}, {address}]"


def test_no_transaction_is_open_while_a_large_state_waits_for_a_call(it: Standing) -> None:
    """20 MB are written by statements of their own, and nobody is idle in transaction."""
    order = it.shop.new_order(BELOW)
    it.shop.fault("refunds", "hold_after", order_id=order)
    thread = it.fleet.submit("large", order, {"order_id": order}).thread_id
    seen: list[Any] = []

    def held() -> bool:
        seen.extend(idle_in_transaction(it.database))
        return bool(it.shop.held(order))

    eventually(held, 30)
    it.shop.release(order)
    it.ends(thread)
    assert seen == []


# Effects


def test_fifty_parallel_effects_happen_once_through_two_kills(it: Standing) -> None:
    """Their results are all in the state."""
    users = [new_user() for _ in range(50)]
    for user in (users[10], users[30]):
        it.shop.fault("notifications", "hold_after", order_id=user, count=1)
    thread = it.fleet.submit("parallel", users[0], {"names": users}).thread_id
    for user in (users[10], users[30]):
        eventually(lambda user=user: it.shop.held(f"{user} hello"), 30)  # type: ignore[misc]
        kill_holder(it, thread)
        it.shop.release(f"{user} hello")
    it.ends(thread)
    assert [told(it.shop, user) for user in users] == [["hello"]] * 50
    found = it.fleet.status(thread)
    assert [effect.state for effect in found.effects] == ["done"] * 52
    assert forks(it.database) == []


def test_the_same_kill_doubles_a_refund_that_is_no_effect(it: Standing) -> None:
    """What these tests would see if effects did not work."""
    order, careful = it.shop.new_order(BELOW), it.shop.new_order(BELOW)
    it.shop.fault("refunds", "hold_after", count=1, order_id=order)
    thread = it.fleet.submit("bare", order, {"order_id": order}).thread_id
    eventually(lambda: it.shop.held(order))
    kill_holder(it, thread)
    it.shop.release(order)
    it.ends(thread)
    assert it.shop.refunds(order) == 2
    it.shop.fault("refunds", "hold_after", count=1, order_id=careful)
    thread = it.fleet.submit("large", careful, {"order_id": careful}).thread_id
    eventually(lambda: it.shop.held(careful), 20)
    kill_holder(it, thread)
    it.shop.release(careful)
    it.ends(thread)
    assert it.shop.refunds(careful) == 1


def test_a_turn_killed_twice_after_its_call_has_made_one_refund(
    workers: Workers, database: Database, fleet: Fleet, shop: Shop
) -> None:
    """Three attempts are on record, of one request."""
    workers.start(concurrency=1, failpoints="effect.after_call=kill:1:2")
    order = shop.new_order(BELOW)
    thread = fleet.submit("refund", order, INPUT).thread_id
    assert fleet.wait(thread, 30).status == "done"
    assert len(workers.hits("effect.after_call")) == 2
    assert crashes(database, order) == [2]
    assert shop.calls("refunds", order) == 3
    assert len(shop.books(order)["calls"]["refunds"]["by_key"]) == 1
    refunded_and_notified_once(shop, order)


# Slots


def test_short_work_passes_a_long_turn(it: Standing) -> None:
    """One of two slots is busy with a call; no mail waits behind it."""
    (long,) = held_orders(it.shop, it.fleet, 1)
    short = [it.order() for _ in range(10)]
    for order in short:
        it.ends(f"refund:{order}")
    assert it.shop.held(long)
    it.shop.release(long)
    it.ends(f"refund:{long}")
    refunded_and_notified_once(it.shop, long, *short)


def test_what_waits_for_its_time_keeps_nobody_and_is_done_once(it: Standing) -> None:
    """Mail that is due later: not before, whoever is killed and whatever becomes of the broker;
    fresh mail goes first, and the broker holds nothing of what waits."""
    later = [it.shop.new_order(BELOW) for _ in range(20)]
    wanted = {"graph": "refund", "input": INPUT, "delay": DELAY}
    it.fleet.submit_many([wanted | {"key": order} for order in later])
    fresh = [it.order() for _ in range(10)]
    for order in fresh:
        it.ends(f"refund:{order}")
    replace_all(it)
    it.broker.client.flushdb()
    for order in later:
        it.ends(f"refund:{order}")
    sql = """SELECT min(first_started_at - accepted_at) FROM fleet.effects
        JOIN fleet.messages USING (thread_id) WHERE thread_id = ANY(%s)"""
    waited = it.database.value(sql, [f"refund:{order}" for order in later])
    assert waited.total_seconds() >= DELAY
    refunded_and_notified_once(it.shop, *later, *fresh)


def test_each_process_has_a_session_of_its_own(it: Standing) -> None:
    """Made after the fork: no two slots share one, nor with their parent."""
    held = held_orders(it.shop, it.fleet, 2)
    owners = {it.fleet.status(f"refund:{order}").owner for order in held}
    sql = """SELECT DISTINCT pid FROM pg_stat_activity WHERE application_name LIKE 'fleet-slot%%'
        AND datname = current_database()"""
    assert len(owners) == 2
    assert len(it.database.fetch(sql)) == 2
    assert {slot_pid(owner or "") for owner in owners} == {
        pid for worker in it.workers for pid in worker.pool_pids()
    }
    it.shop.release()
    for order in held:
        it.ends(f"refund:{order}")


def test_failures_leave_no_memory_behind(it: Standing) -> None:
    """Each had a megabyte in its frame: once warm, the processes hardly grow."""

    def fail(number: int, name: str) -> None:
        items = [{"graph": "failing", "key": f"{name}{n}", "input": {}} for n in range(number)]
        for receipt in it.fleet.submit_many(items):
            assert it.fleet.wait(receipt.thread_id, 30).status == "failed"

    def used() -> int:
        pids = [pid for worker in it.workers for pid in worker.pool_pids()]
        return sum(psutil.Process(pid).memory_info().rss for pid in pids)

    fail(150, "warm")
    before = used()
    fail(150, "cold")
    assert used() - before < 30_000_000


def test_the_broker_holds_nothing_of_what_was_done(it: Standing) -> None:
    """Keys and connections are those of before, but for events, however many threads submit."""
    client = it.broker.client
    orders = [it.order() for _ in range(2)]
    for order in orders:
        it.ends(f"refund:{order}")
    eventually(lambda: client.hlen("unacked") == 0)

    def connections() -> int:
        here = client.get_connection_kwargs()["db"]
        return sum(c["db"] == str(here) for c in client.client_list())

    def kept() -> int:
        """Keys but the threads' events, which go by themselves."""
        events = [*client.scan_iter("fleet:events:*", count=1000)]
        assert all(client.ttl(key) > 0 for key in events)
        return client.dbsize() - len(events)

    much = INPUT | {"more": "x" * 50_000}
    keys, opened, callers = kept(), connections(), 12
    for _ in range(4):
        orders = [it.shop.new_order(BELOW) for _ in range(callers)]
        calls = [partial(it.fleet.submit, "refund", order, much) for order in orders]
        assert all(r.outcome == "accepted" for r in at_once(calls))
        for order in orders:
            it.ends(f"refund:{order}")
    eventually(lambda: client.hlen("unacked") == 0 and kept() <= keys)
    # As many as callers at once, and those that the workers open as they need them; none a call.
    assert connections() <= opened + callers + 6


# Others


def test_a_thread_whose_worker_died_can_be_cancelled(
    workers: Workers, database: Database, broker: Broker, fleet: Fleet, shop: Shop
) -> None:
    """Before anybody has taken it over: what was called stays called, and nothing else is."""
    worker = workers.start(concurrency=1)
    (order,) = held_orders(shop, fleet, 1)
    thread = f"refund:{order}"
    worker.kill()
    fleet.cancel(thread)
    workers.start(concurrency=1)
    assert fleet.wait(thread, 20).status == "cancelled"
    eventually(lambda: is_at_rest(database, broker))
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)
    assert f" order {order} " not in str(shop.books(order)["notifications"])


def test_two_fleets_on_one_broker_do_not_meet(
    workers: Workers, databases: Databases, broker: Broker, fleet: Fleet, shop: Shop
) -> None:
    """Each has a queue of its own; kombu's book of deliveries is one for both."""
    other = databases.create()
    other.fetch("UPDATE fleet.graphs SET queue = 'theirs'")
    try:
        theirs = workers.start(concurrency=1, queue="theirs", postgres_url=other.url, wait=False)
        ours = workers.start(concurrency=1)
        (here,) = held_orders(shop, fleet, 1)
        with Fleet(other.url, broker.url) as neighbour:
            (there,) = held_orders(shop, neighbour, 1)
            os.kill(ours.pool_pids()[0], signal.SIGKILL)
            assert fleet.wait(f"refund:{here}", 20).status == "done"
            shop.release()
            assert neighbour.wait(f"refund:{there}", 20).status == "done"
            assert neighbour.status(f"refund:{there}").messages[0].crashes == 0
    finally:
        theirs.kill()
        databases.drop(other)
    refunded_and_notified_once(shop, here, there)
