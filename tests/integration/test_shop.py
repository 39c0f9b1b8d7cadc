"""The dev shop: its contract, its books, and what it can be told to do wrong."""

import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.devservers import Stack
from tests.harness import Shop, clean_environment, eventually


@pytest.fixture
def http(shop: Shop) -> Iterator[httpx.Client]:
    """A client of the shop."""
    with httpx.Client(base_url=shop.url, timeout=10) as client:
        yield client


def new_key() -> str:
    return uuid.uuid4().hex


def refund(
    http: httpx.Client, order_id: str, key: str, amount: str = "141.50", **more: Any
) -> httpx.Response:
    body = {"order_id": order_id, "amount": amount, **more}
    return http.post("/refunds", json=body, headers={"Idempotency-Key": key})


def in_background(call: Any, *args: Any) -> "tuple[threading.Thread, list[Any]]":
    """Run a call in a thread; its result lands in the list."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call(*args))
        except httpx.HTTPError as exc:
            results.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def test_demo_orders_alternate_around_the_approval_limit(http: httpx.Client) -> None:
    """Odd ids below 1000, even ones above; amounts are strings with two places."""
    low, high = http.get("/orders/A1001").json(), http.get("/orders/A1002").json()
    assert low == {"order_id": "A1001", "user_id": "u_42", "amount": "141.01"}
    assert float(high["amount"]) > 1000


def test_an_order_can_be_set(shop: Shop, http: httpx.Client) -> None:
    """With a user and an amount."""
    order = shop.new_order("12.5", user_id="u_7")
    shown = {"order_id": order, "user_id": "u_7", "amount": "12.50"}
    assert http.get(f"/orders/{order}").json() == shown


def test_an_unknown_order_is_404_with_a_sentence(http: httpx.Client) -> None:
    """And cannot be refunded."""
    answer = http.get("/orders/missing-1")
    assert (answer.status_code, answer.json()) == (404, {"error": "There is no order missing-1."})
    assert refund(http, "missing-1", new_key()).status_code == 422


def test_a_refund_is_made_once_per_key(shop: Shop, http: httpx.Client) -> None:
    """The same key gets the same reply; another key would refund again."""
    order, key = shop.new_order(), new_key()
    first, second = refund(http, order, key), refund(http, order, key)
    assert (first.status_code, first.json()["status"]) == (200, "succeeded")
    assert first.json() == second.json()
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 2)
    assert refund(http, order, new_key()).json() != first.json()
    assert shop.refunds(order) == 2


def test_a_key_with_another_body_is_refused(shop: Shop, http: httpx.Client) -> None:
    """422, and nothing is done."""
    key, other = new_key(), shop.new_order()
    refund(http, shop.new_order(), key)
    assert refund(http, other, key).status_code == 422
    assert shop.refunds(other) == 0


def test_a_refund_can_be_looked_up_by_its_key(shop: Shop, http: httpx.Client) -> None:
    """404 before, 200 after."""
    order, key = shop.new_order(), new_key()
    assert http.get(f"/refunds/{key}").status_code == 404
    made = refund(http, order, key).json()
    found = http.get(f"/refunds/{key}").json()
    assert found | made == found
    assert (found["order_id"], found["amount"]) == (order, "141.50")


def test_another_amount_than_the_orders_is_refused(shop: Shop, http: httpx.Client) -> None:
    """Amounts are compared as decimals."""
    order = shop.new_order("100.00")
    assert refund(http, order, new_key(), amount="99.99").status_code == 422
    assert refund(http, order, new_key(), amount="100").status_code == 200


def test_a_notification_is_sent_once_per_key(shop: Shop, http: httpx.Client) -> None:
    """Same rules as refunds."""
    order, headers = shop.new_order(), {"Idempotency-Key": new_key()}
    body = {"user_id": "u_42", "text": f"order {order} refunded"}
    first = http.post("/notifications", json=body, headers=headers)
    assert first.status_code == 200
    assert first.json() == http.post("/notifications", json=body, headers=headers).json()
    other = http.post("/notifications", json=body | {"text": "other"}, headers=headers)
    assert other.status_code == 422
    assert len(shop.books(order)["notifications"]) == 1


@pytest.mark.parametrize(
    ("content", "key"),
    [
        (b'{"order_id": "A1001", "amount": "141.01"}', ""),
        (b"{", "k"),
        (b"[]", "k"),
        (b'{"amount": "1.00"}', "k"),
        (b'{"order_id": 7, "amount": "1.00"}', "k"),
        (b'{"order_id": "A1001", "amount": 141.01}', "k"),
        (b'{"order_id": "A1001", "amount": "1e2"}', "k"),
        (b'{"order_id": "A1001", "amount": "1.001"}', "k"),
        (b'{"order_id": "A1001", "amount": "-1.00"}', "k"),
    ],
)
def test_a_malformed_request_gets_400_and_a_sentence(
    content: bytes, key: str, http: httpx.Client
) -> None:
    """Nothing is done, and the key stays free."""
    answer = http.post("/refunds", content=content, headers={"Idempotency-Key": key})
    assert answer.status_code == 400
    assert answer.json()["error"].endswith(".")


def test_an_unknown_path_or_method_is_answered_in_json(http: httpx.Client) -> None:
    """Never by an HTML page."""
    assert http.get("/nothing").json()["error"] == "There is nothing at /nothing."
    assert http.patch("/orders/A1").status_code == 501
    assert http.patch("/orders/A1").json()["error"]


def test_the_same_key_in_flight_is_409(shop: Shop, http: httpx.Client) -> None:
    """While the first call still runs; its own reply comes in the end."""
    order, key = shop.new_order(), new_key()
    shop.fault("refunds", "hang", order_id=order, count=1)
    thread, results = in_background(refund, http, order, key)
    eventually(lambda: shop.calls("refunds", order) == 1)
    assert eventually(lambda: refund(http, order, key)).status_code == 409
    shop.clear_faults()
    thread.join(10)
    assert results[0].status_code == 200
    assert shop.refunds(order) == 1


@pytest.mark.parametrize(
    ("mode", "status", "done"),
    [("fail_before", 503, 0), ("fail_after", 500, 1), ("refuse", 402, 0), ("busy_429", 429, 0)],
)
def test_a_failure_before_or_after_acting(
    mode: str, status: int, done: int, shop: Shop, http: httpx.Client
) -> None:
    """For the next `count` calls; a repetition of the key then gets through."""
    order, key = shop.new_order(), new_key()
    shop.fault("refunds", mode, order_id=order, count=1, retry_after=0.5)
    answer = refund(http, order, key)
    assert (answer.status_code, shop.refunds(order)) == (status, done)
    assert ("Retry-After" in answer.headers) == (mode == "busy_429")
    assert refund(http, order, key).status_code == 200
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 2)


@pytest.mark.parametrize(("mode", "done"), [("drop_before", 0), ("drop_after", 1)])
def test_a_dropped_connection(mode: str, done: int, shop: Shop, http: httpx.Client) -> None:
    """The client hears nothing, whether it was done or not."""
    order, key = shop.new_order(), new_key()
    shop.fault("refunds", mode, order_id=order, count=1)
    with pytest.raises(httpx.RemoteProtocolError):
        refund(http, order, key)
    assert shop.refunds(order) == done
    assert refund(http, order, key).status_code == 200
    assert shop.refunds(order) == 1


def test_a_slow_shop_takes_its_seconds(shop: Shop, http: httpx.Client) -> None:
    """Any target can be slow."""
    order = shop.new_order()
    shop.fault("orders", "slow", order_id=order, seconds=0.2, count=1)
    begun = time.monotonic()
    assert http.get(f"/orders/{order}").status_code == 200
    assert time.monotonic() - begun >= 0.2


def test_keys_that_are_not_honoured(shop: Shop, http: httpx.Client) -> None:
    """Every call acts: this is what request ids protect from."""
    order, key = shop.new_order(), new_key()
    shop.fault("refunds", "ignore_keys", order_id=order)
    refund(http, order, key)
    refund(http, order, key)
    assert shop.refunds(order) == 2


def test_a_reply_can_be_held_after_the_shop_has_paid(shop: Shop, http: httpx.Client) -> None:
    """The next caller with the key gets its reply; the held call gets it when released."""
    order, key = shop.new_order(), new_key()
    shop.call("POST", "/admin/hold", order_id=order)
    thread, results = in_background(refund, http, order, key)
    held = eventually(lambda: shop.held(order))
    assert (held[0]["request_id"], shop.refunds(order)) == (key, 1)
    assert refund(http, order, key).status_code == 200
    assert results == []
    shop.release(order)
    thread.join(10)
    assert results[0].status_code == 200
    assert (shop.held(order), shop.refunds(order)) == ([], 1)


def test_a_fault_that_cannot_be_understood_is_refused(http: httpx.Client) -> None:
    """A misspelt fault that never happens would make a test pass."""
    for wrong in (
        {"target": "refund", "mode": "slow"},
        {"target": "refunds", "mode": "sleepy"},
        {"target": "refunds", "mode": "slow", "seconds": "1"},
        {"target": "refunds", "mode": "slow", "order": "A1"},
    ):
        assert http.post("/admin/faults", json=wrong).status_code == 400


def test_many_at_once_are_each_done_once(shop: Shop, http: httpx.Client) -> None:
    """Two callers per key, all at the same time."""
    orders = {new_key(): shop.new_order() for _ in range(20)}

    def pay(key: str) -> int:
        for _ in range(50):
            if (status := refund(http, orders[key], key).status_code) != 409:
                return status
        return 409

    with ThreadPoolExecutor(10) as pool:
        assert set(pool.map(pay, [*orders, *orders])) == {200}
    assert {shop.refunds(order) for order in orders.values()} == {1}


def test_the_books_survive_kill_9(stack: Stack, tmp_path: Path) -> None:
    """What was answered is in them, keys and counts too; a torn last line is not."""
    shop = Shop(stack, tmp_path)
    order, key = shop.new_order("77.00"), new_key()
    with httpx.Client() as http:
        http.base_url = httpx.URL(shop.url)
        first = refund(http, order, key, amount="77.00").json()
        shop.kill()
        with (tmp_path / "books.jsonl").open("a") as books:
            books.write('{"act": "refunds", "key": "to')
        shop.start()
        assert refund(http, order, key, amount="77.00").json() == first
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 2)
    shop.close()


def test_a_taken_port_is_said_in_one_sentence(tmp_path: Path) -> None:
    """No traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = [sys.executable, "-m", "infra.shop", "--port", str(port)]
        done = subprocess.run(
            [*argv, "--books", str(tmp_path / "b")],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"The shop cannot listen on port {port}")
    assert "Traceback" not in done.stderr
