"""The broker may hold anything, send it twice, lose it or be away: mail is in Postgres."""

import base64
import gzip
import json
import os
import pickle
import shutil
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from infra.devservers import Stack
from infra.folders import temporary_folder
from producers import Fleet
from producers.wakeup import message
from tests.harness import Broker, Database, Shop, eventually
from tests.worker_processes import Workers

QUEUE = "fleet"
INPUT = {"user_id": "u_42"}


def envelope(**changes: Any) -> dict[str, Any]:
    """A wake-up as it lies in the queue, with top-level fields replaced."""
    made: dict[str, Any] = json.loads(message(QUEUE, "refund:nobody")) | changes
    return made


def with_headers(**changes: Any) -> dict[str, Any]:
    return envelope(headers=envelope()["headers"] | changes)


def with_body(body: Any) -> dict[str, Any]:
    return envelope(body=base64.b64encode(json.dumps(body).encode()).decode())


def without(place: dict[str, Any], *path: str) -> dict[str, Any]:
    inner = place
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return place


PICKLED = base64.b64encode(pickle.dumps((("refund:nobody",), {}, {}))).decode()

#: What is pushed, and what the reason says.
STRANGE: dict[str, tuple[bytes | dict[str, Any] | list[Any], str]] = {
    "bytes": (b"\xff\x00\xfe garbage", "not JSON"),
    "nothing": (b"", "not JSON"),
    "deep": (b"[" * 100_000, "not JSON"),
    "number": (b"42", "no Celery message"),
    "list": ([1, 2, 3], "no Celery message"),
    "object": ({"order": "A1001"}, "no Celery message"),
    "no tag": (without(envelope(), "properties", "delivery_tag"), "no Celery message"),
    "no route": (
        without(envelope(), "properties", "delivery_info", "routing_key"),
        "no Celery message",
    ),
    "no base64": (envelope(body="%%%"), "no Celery message|can't be read"),
    "headers a text": (envelope(headers="task"), "no Celery message"),
    "no headers": (envelope(headers={}), "no header that names a task"),
    "task a list": (with_headers(task=["fleet.turns"]), "no header that names a task"),
    "no id": (without(envelope(), "headers", "id"), "it has no id"),
    "pickle": (
        envelope(
            body=PICKLED,
            **{"content-type": "application/x-python-serialize", "content-encoding": "binary"},
        ),
        "can't be read: ContentDisallowed",
    ),
    "other type": (envelope(**{"content-type": "text/nonsense"}), "can't be read"),
    "compressed": (with_headers(compression="nonsense"), "it is compressed"),
    "gzip": (
        with_headers(compression="application/x-gzip")
        | {"body": base64.b64encode(gzip.compress(b" " * 1_000_000)).decode()},
        "it is compressed",
    ),
    "large": (b'"' + b"x" * 2_000_000 + b'"', "1048576 are allowed"),
    "body no JSON": (envelope(body=base64.b64encode(b"{").decode()), "can't be read"),
    "body an object": (with_body({"a": 1, "b": 2, "c": 3}), "can't be read"),
    "null embedded": (with_body([["refund:A"], {}, None]), "can't be read"),
    "unknown task": (with_headers(task="billing.charge"), "the task 'billing.charge'"),
    "no arguments": (with_body([[], {}, {}]), "takes one argument"),
    "two arguments": (with_body([["refund:A", 2], {}, {}]), "takes one argument"),
    "a number": (with_body([[7], {}, {}]), "takes one argument"),
    "a word more": (with_body([["refund:A"], {"force": True}, {}]), "takes one argument"),
    "a version": (with_body([["refund:A"], {"v": "99"}, {}]), "version '99'"),
    "no thread": (with_body([["refund"], {}, {}]), "can't be a thread"),
    "NUL": (with_body([["refund:A\0"], {}, {}]), "can't be a thread"),
    "eta": (with_headers(eta="the day after"), "it has an ETA"),
    "countdown": (with_headers(eta="2999-01-01T00:00:00+00:00"), "it has an ETA"),
    "chain": (
        with_body([["refund:A"], {}, {"chain": [{"task": "fleet.turns", "args": ["refund:B"]}]}]),
        "it asks for more when it is done: chain",
    ),
    "callback": (with_body([["refund:A"], {}, {"callbacks": [{}]}]), "it asks for more"),
    **{
        task: (with_headers(task=task), f"the task '{task}'")
        for task in ("celery.chain", "celery.map", "celery.chord_unlock", "celery.backend_cleanup")
    },
    "time limit": (with_headers(timelimit=["x", 1]), "time limit"),
    "a number as time limit": (with_headers(timelimit=7), "time limit"),
    "half a time limit": (with_headers(timelimit=[None]), "time limit"),
    "no tag that Redis takes": (
        envelope(properties=envelope()["properties"] | {"delivery_tag": "\ud800"}),
        "no Celery message",
    ),
    "unknown thread": (envelope(), "no thread refund:nobody"),
}


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_what_is_no_wake_up_is_set_aside_with_its_reason(
    pool: str, fleet: Fleet, broker: Broker, database: Database, shop: Shop, workers: Workers
) -> None:
    """Whatever lies in the queue, the worker goes on with the next and no slot is lost."""
    worker = workers.start(pool=pool, concurrency=1)
    for found, _ in STRANGE.values():
        broker.client.lpush(QUEUE, found if isinstance(found, bytes) else json.dumps(found))
    rows = eventually(lambda: set_aside(database, len(STRANGE)), 20)
    # The last is found out by a slot, whose word may come before that of the others.
    rows.sort(key=lambda row: "no thread" in row[1])
    for (_, reason), (name, (_, expected)) in zip(rows, STRANGE.items(), strict=True):
        assert any(part in reason for part in expected.split("|")), f"{name}: {reason}"
    assert "garbage" in rows[0][0]
    assert all(len(body) <= 4000 and len(reason) <= 4000 for body, reason in rows)
    order = shop.new_order()
    fleet.submit("refund", order, INPUT)
    assert fleet.wait(f"refund:{order}", 10).status == "done"
    eventually(lambda: broker.client.hlen("unacked") == 0)
    assert worker.child.poll() is None
    assert "Traceback" not in worker.log()


def set_aside(database: Database, count: int) -> list[tuple[str, str]]:
    rows = database.fetch("SELECT body, reason FROM fleet.rejected_wakeups ORDER BY id")
    return rows if len(rows) >= count else []


def start_and_hold(fleet: Fleet, shop: Shop) -> str:
    """A refund whose call has acted and waits for its reply; gives the order."""
    order = shop.new_order()
    shop.fault("refunds", "hold_after", order_id=order)
    fleet.submit("refund", order, INPUT)
    eventually(lambda: shop.held(order))
    return order


def done_once(fleet: Fleet, shop: Shop, order: str) -> None:
    """The refund is done after one call, and nothing counted as a crash."""
    status = fleet.wait(f"refund:{order}", 15)
    assert status.status == "done"
    assert [m.crashes for m in status.messages] == [0]
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)


def test_a_wake_up_that_comes_again_while_the_first_runs_does_nothing(
    fleet: Fleet, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """Three more for a thread whose refund is at the shop: acked at once, one call."""
    workers.start(concurrency=2)
    order = start_and_hold(fleet, shop)
    for _ in range(3):
        broker.client.lpush(QUEUE, message(QUEUE, f"refund:{order}"))
    eventually(lambda: broker.client.llen(QUEUE) == 0 and broker.client.hlen("unacked") <= 1)
    shop.release(order)
    done_once(fleet, shop, order)


def test_a_worker_whose_broker_connections_are_killed_ends_its_turn(
    fleet: Fleet, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """The running turn goes on, its redelivered wake-up does nothing, and new mail is served."""
    worker = workers.start(concurrency=2)
    order = start_and_hold(fleet, shop)
    for client in broker.client.client_list():
        if client["db"] == str(broker.client.get_connection_kwargs()["db"]):
            broker.client.client_kill_filter(_id=client["id"], skipme=True)
    broker.client.lpush(QUEUE, message(QUEUE, f"refund:{order}"))
    eventually(lambda: "Connection to broker lost" in worker.log())
    eventually(lambda: broker.client.llen(QUEUE) == 0)
    shop.release(order)
    done_once(fleet, shop, order)
    other = shop.new_order()
    fleet.submit("refund", other, INPUT)
    done_once(fleet, shop, other)


def test_an_emptied_broker_loses_nothing(
    fleet: Fleet, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """FLUSHDB with one turn running and mail of ten threads waiting: all are done once."""
    workers.start(concurrency=1)
    held = start_and_hold(fleet, shop)
    orders = [shop.new_order() for _ in range(10)]
    fleet.submit_many([("refund", order, INPUT) for order in orders])
    broker.client.flushdb()
    shop.release(held)
    for order in [held, *orders]:
        done_once(fleet, shop, order)


def test_mail_of_a_broker_that_was_emptied_with_no_worker_up_is_found(
    fleet: Fleet, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """A worker started later finds it in Postgres."""
    orders = [shop.new_order() for _ in range(3)]
    fleet.submit_many([("refund", order, INPUT) for order in orders])
    broker.client.flushdb()
    workers.start(concurrency=2)
    for order in orders:
        done_once(fleet, shop, order)


@pytest.fixture
def own_broker(stack: Stack) -> Iterator[Stack]:
    """A broker of the test's own, in a folder that the servers' user can enter."""
    folder = temporary_folder(servers_enter=True)
    with Stack(folder, durable=False, postgres_url=stack.postgres_url) as own:
        yield own
    shutil.rmtree(folder)


def test_a_hung_broker_delays_the_start_and_nothing_else(
    own_broker: Stack, database: Database, shop: Shop, workers: Workers
) -> None:
    """Stopped at submit: accepted in bounded time, not published; done once it goes on."""
    workers.start(concurrency=1, redis_url=own_broker.redis_url)
    client = redis.Redis.from_url(own_broker.redis_url)
    pid = int(client.info("server")["process_id"])
    order = shop.new_order()
    with Fleet(database.url, own_broker.redis_url) as fleet:
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            receipt = fleet.submit("refund", order, INPUT)
        finally:
            took = time.monotonic() - began
            os.kill(pid, signal.SIGCONT)
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        assert took < 3
        done_once(fleet, shop, order)


def test_a_broker_that_is_down_delays_the_start_and_nothing_else(
    own_broker: Stack, database: Database, stack: Stack, shop: Shop, workers: Workers
) -> None:
    """Down at submit: accepted, not published; done once it is back on its old port."""
    worker = workers.start(concurrency=1, redis_url=own_broker.redis_url)
    folder, url = own_broker.data_dir, own_broker.redis_url
    own_broker.close()
    order = shop.new_order()
    with Fleet(database.url, url) as fleet:
        began = time.monotonic()
        receipt = fleet.submit("refund", order, INPUT)
        assert time.monotonic() - began < 3
        assert (receipt.outcome, receipt.published) == ("accepted", False)
        with Stack(folder, durable=False, postgres_url=stack.postgres_url) as again:
            assert again.redis_url == url
            done_once(fleet, shop, order)
    assert worker.child.poll() is None


def test_a_worker_whose_broker_dies_ends_its_turn(
    own_broker: Stack, database: Database, shop: Shop, workers: Workers
) -> None:
    """kill -9 with a turn under way and a free slot: the worker goes on, its wake-up, which
    can't be acknowledged any more, ends nothing either, and later mail is served."""
    worker = workers.start(concurrency=2, redis_url=own_broker.redis_url)
    (server,) = (s for s in own_broker.servers if s.name == "broker")
    with Fleet(database.url, own_broker.redis_url) as fleet:
        order = start_and_hold(fleet, shop)
        server.child.kill_group()
        assert server.child.wait(5) is not None
        eventually(lambda: "Connection to broker lost" in worker.log())
        shop.release(order)
        done_once(fleet, shop, order)
        server.again()
        other = shop.new_order()
        fleet.submit("refund", other, INPUT)
        done_once(fleet, shop, other)
    assert worker.child.poll() is None and "Unrecoverable" not in worker.log()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_pool_process_that_is_told_to_end_releases_its_mail(
    signum: signal.Signals, fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """As systemd does to a whole group: the call is made again under its id, nobody failed."""
    worker = workers.start(concurrency=1)
    order = start_and_hold(fleet, shop)
    os.kill(worker.pool_pids()[0], signum)
    shop.release()
    status = fleet.wait(f"refund:{order}", 20)
    assert (status.status, status.messages[0].crashes) == ("done", 0)
    assert shop.refunds(order) == 1


def test_what_was_never_delivered_or_is_no_command_stops_no_worker(
    fleet: Fleet, broker: Broker, database: Database, shop: Shop, workers: Workers
) -> None:
    """Junk among the deliveries that are put back at a start, and on Celery's own channel."""
    for tag, junk in {"a": "[]", "b": "{}", "c": "not json", "d": '[5, "x", "y"]'}.items():
        broker.client.hset("unacked", tag, junk)
        broker.client.zadd("unacked_index", {tag: 1})
    worker = workers.start(concurrency=1)
    channel = f"/{broker.url.rpartition('/')[2]}.celery.pidbox"
    packed = '{"body": "x", "headers": {"compression": "gzip"}, "properties": {}}'
    for junk in ("5", packed, '{"body": "x", "headers": {}, "properties": {}}', "not json"):
        assert eventually(lambda junk=junk: broker.client.publish(channel, junk), 10)
    order = shop.new_order()
    fleet.submit("refund", order, INPUT)
    assert fleet.wait(f"refund:{order}", 10).status == "done"
    eventually(lambda: broker.client.hlen("unacked") == 0)
    assert worker.child.poll() is None
    eventually(lambda: set_aside(database, 5))
