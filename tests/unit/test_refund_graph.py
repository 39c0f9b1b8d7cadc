"""The refund graph over HTTP to a small shop, without a fleet around it."""

import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from graphs import refund, shop
from graphs.control import RetryLater
from graphs.errors import EffectFailed
from infra.errors import SettingsError
from infra.settings import get_settings
from tests.unit.memory_turn import Killed, Ran, Runner, killed_at


class Shop:
    """Orders, refunds and notifications by request id; the first answers can be scripted."""

    def __init__(self) -> None:
        self.orders = {"A1": "100.00", "A2": "1000", "A3": "1000.01", "A4": "2500.10"}
        self.refunds: dict[str, dict[str, str]] = {}
        self.told: dict[str, dict[str, str]] = {}
        self.calls: list[tuple[str, str]] = []
        self.script: list[Any] = []
        self.lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self.lock:
            self.calls.append((request.method, request.url.path))
            if self.script and (answer := self.script.pop(0)) is not None:
                if isinstance(answer, Exception):
                    raise answer
                return answer
            return self.answer(request)

    def answer(self, request: httpx.Request) -> httpx.Response:
        _, what, *rest = request.url.path.split("/")
        if request.method == "GET":
            amount = self.orders.get(rest[0])
            if amount is None:
                return httpx.Response(404)
            return httpx.Response(
                200, json={"order_id": rest[0], "user_id": "u_1", "amount": amount}
            )
        body = json.loads(request.content)
        books = self.refunds if what == "refunds" else self.told
        books.setdefault(request.headers["Idempotency-Key"], body)
        return httpx.Response(200, json={"refund_id": f"r{len(self.refunds)}", "status": "done"})

    def refunded(self) -> list[tuple[str, str]]:
        return [(b["order_id"], b["amount"]) for b in self.refunds.values()]

    def texts(self) -> list[str]:
        return [b["text"] for b in self.told.values()]


@pytest.fixture
def books(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    made = Shop()
    client = httpx.Client(base_url="http://shop", transport=httpx.MockTransport(made))
    monkeypatch.setattr(shop, "client", lambda: client)
    get_settings.cache_clear()
    yield made
    get_settings.cache_clear()


def start(order_id: str) -> tuple[Runner, Ran]:
    runner = Runner(refund.build(), name="refund")
    return runner, runner.run({"user_id": "u_42"}, key=order_id)


def answered(order_id: str, answer: Any) -> Any:
    runner, ran = start(order_id)
    assert ran.error is None
    question = runner.snapshot(order_id).interrupts[0].id
    return runner.done(Command(resume={question: answer}), key=order_id)


@pytest.mark.parametrize(("order_id", "amount"), [("A1", "100.00"), ("A2", "1000")])
def test_up_to_the_limit_it_is_refunded_at_once(books: Shop, order_id: str, amount: str) -> None:
    """The limit itself is not above the limit."""
    _, ran = start(order_id)
    assert ran.value["outcome"] == "refunded"
    assert ran.value["approval"] == "automatic"
    assert books.refunded() == [(order_id, amount)]
    assert books.texts() == [f"Your refund of {amount} for order {order_id} has been made."]
    assert next(iter(books.told.values()))["user_id"] == "u_42"


def test_above_the_limit_a_person_is_asked(books: Shop) -> None:
    """With what is to be done, and what may be answered."""
    runner, ran = start("A3")
    assert ran.error is None
    assert books.refunds == {}
    (asked,) = runner.snapshot("A3").interrupts
    assert asked.value["action_requests"][0]["args"] == {"order_id": "A3", "amount": "1000.01"}
    assert asked.value["review_configs"] == [
        {"action_name": "refund", "allowed_decisions": ["approve", "reject"]}
    ]


@pytest.mark.parametrize(
    "answer", ["approved", {"decisions": [{"type": "approve"}]}, [{"type": "accept", "args": None}]]
)
def test_approved_it_is_refunded_once(books: Shop, answer: Any) -> None:
    """In each form of the answer."""
    assert answered("A4", answer)["outcome"] == "refunded"
    assert books.refunded() == [("A4", "2500.10")]


def test_rejected_it_refunds_nothing_and_says_so(books: Shop) -> None:
    """In order, with the reason."""
    answer = {"decisions": [{"type": "reject", "message": "too late"}]}
    assert answered("A4", answer)["outcome"] == "rejected"
    assert books.refunds == {}
    assert books.texts() == ["Your refund for order A4 was rejected. Reason: too late"]


def test_an_unknown_order_ends_in_order(books: Shop) -> None:
    """Nothing refunded, nobody told."""
    _, ran = start("nope/../A1")
    assert ran.value["outcome"] == "order_not_found"
    assert (books.refunds, books.told) == ({}, {})
    assert books.calls == [("GET", "/orders/nope/../A1")]


def test_the_limit_is_read_when_the_order_is(books: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting, not a constant of the graph."""
    monkeypatch.setenv("FLEET_APPROVAL_LIMIT", "99.99")
    get_settings.cache_clear()
    runner, _ = start("A1")
    assert len(runner.snapshot("A1").interrupts) == 1


def test_amounts_are_never_floats(books: Shop) -> None:
    """Text in the state, digits kept on the wire; a JSON number loses nothing either."""
    books.orders["A5"] = "0.10"
    runner, _ = start("A5")
    assert runner.snapshot("A5").values["amount"] == "0.10"
    books.script = [
        httpx.Response(200, content=b'{"user_id": "u", "amount": 12345678901234567.10}')
    ]
    assert shop.get_order("x") == {
        "order_id": "x",
        "user_id": "u",
        "amount": "12345678901234567.10",
    }
    shop.post_refund("A6", Decimal("1E+3"), request_id="fr_1")
    assert books.refunded()[-1] == ("A6", "1000")


def test_no_second_thread_and_no_restart_refunds_an_order_again(books: Shop) -> None:
    """The refund is keyed by the order."""
    runner, _ = start("A1")
    again = runner.run({"user_id": "u_42"}, key="A1", generation=2)
    assert again.value["outcome"] == "refunded"
    assert books.refunded() == [("A1", "100.00")]
    assert len(books.told) == 2


@pytest.mark.parametrize(
    "point", ["effect.after_intent", "effect.after_call", "effect.after_result"]
)
@pytest.mark.parametrize("hit", [1, 2])
def test_killed_anywhere_it_refunds_and_tells_once(
    books: Shop, monkeypatch: pytest.MonkeyPatch, point: str, hit: int
) -> None:
    """By the shop's own books."""
    runner = Runner(refund.build(), name="refund")
    with killed_at(monkeypatch, point, hit):
        assert isinstance(runner.run({"user_id": "u_42"}, key="A1").error, Killed)
    assert runner.done(None, key="A1")["outcome"] == "refunded"
    assert books.refunded() == [("A1", "100.00")]
    assert len(books.told) == 1


def test_a_shop_that_is_down_brings_the_turn_back_later(books: Shop) -> None:
    """At the order and at the refund: counted, nothing lost, nothing twice."""
    down = httpx.ConnectError("refused")
    books.script = [down] * 4
    runner, ran = start("A1")
    assert isinstance(ran.error, RetryLater)
    assert ran.error.counted
    books.script = [None, httpx.Response(429, headers={"Retry-After": "60"})]
    error = runner.run(None, key="A1").error
    assert isinstance(error, RetryLater)
    assert error.delay == 60
    assert runner.done(None, key="A1")["outcome"] == "refunded"
    assert len(books.refunds) == 1


def test_an_answer_that_is_no_json_is_asked_for_again(books: Shop) -> None:
    """It says nothing of what was done, and the request id is safe to send again."""
    books.script = [None, httpx.Response(200, text="<html>")]
    _, ran = start("A1")
    assert ran.value["outcome"] == "refunded"
    assert [c for c in books.calls if c == ("POST", "/refunds")] == [("POST", "/refunds")] * 2
    assert len(books.refunds) == 1


def test_a_refused_refund_fails_for_good(books: Shop) -> None:
    """And tells the user nothing false."""
    books.script = [None, httpx.Response(422, text="closed")]
    _, ran = start("A1")
    assert isinstance(ran.error, EffectFailed)
    assert books.told == {}


def test_without_a_shop_set_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a traceback of httpx."""
    monkeypatch.delenv("FLEET_SHOP_URL", raising=False)
    monkeypatch.setattr(
        shop, "get_settings", lambda: get_settings().model_copy(update={"shop_url": None})
    )
    with pytest.raises(SettingsError, match="FLEET_SHOP_URL"):
        shop.client()


def test_clients_are_one_per_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child after a fork gets its own."""
    settings = get_settings().model_copy(update={"shop_url": "http://127.0.0.1:9"})
    monkeypatch.setattr(shop, "get_settings", lambda: settings)
    mine = shop.client()
    assert shop.client() is mine
    monkeypatch.setattr(shop.os, "getpid", lambda: -1)
    assert shop.client() is not mine


def test_the_same_graph_runs_on_plain_langgraph(books: Shop) -> None:
    """For comparison: other callables in place of the effects."""
    ids = iter(["one", "two"])
    graph = refund.build(
        refund=lambda order_id, amount: shop.post_refund(order_id, amount, request_id=next(ids)),
        notify=lambda user_id, text: shop.post_notification(user_id, text, request_id=next(ids)),
    ).compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t", "fleet_key": "A4"}}
    graph.invoke({"user_id": "u_42"}, config)
    assert graph.invoke(Command(resume="approved"), config)["outcome"] == "refunded"
    assert [*books.refunds, *books.told] == ["one", "two"]
