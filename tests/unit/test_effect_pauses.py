"""Pauses between the tries of an effect when the worker wants its slot back."""

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from graphs.control import ClaimLost, RetryLater
from graphs.effects import effect
from graphs.ledger import Ledger
from tests.unit.memory_turn import AsyncRunner, Database, MemoryTurn, Runner
from tests.unit.test_effects import Outside, State, graph, one_call, pay_effect, refused

CONNECT = httpx.ConnectError("refused", request=httpx.Request("POST", "http://shop/refunds"))


def sync(outside: Outside, **options: Any) -> Runner:
    return one_call(pay_effect(outside, retry=None, **options))


def in_async(outside: Outside, **options: Any) -> Runner:
    @effect("pay", **options)
    async def pay(*, request_id: str) -> Any:
        return outside(request_id)

    async def node(state: State) -> State:
        return {"log": [await pay()]}

    return AsyncRunner(graph(node))


def stopped(runner: Runner) -> tuple[RetryLater, float]:
    """Why the runner's first turn stopped, and after how many seconds."""
    began = time.monotonic()
    error = runner.run({}).error
    assert isinstance(error, RetryLater), error
    return error, time.monotonic() - began


@pytest.mark.parametrize("kind", [sync, in_async])
def test_a_pause_ends_when_the_worker_leaves(kind: Callable[..., Runner]) -> None:
    """At once, uncounted, and not before the time that the outside has asked for; the next
    turn sends the same request id."""

    def then_leave() -> None:
        runner.leaving.set()
        raise refused(429, **{"Retry-After": "20"})

    outside = Outside(then_leave)
    runner = kind(outside)
    error, took = stopped(runner)
    assert (error.counted, error.delay) == (False, 20.0)
    assert took < 5 and len(outside.seen) == 1
    runner.leaving.clear()
    assert runner.done(None)["log"] == [2]
    assert len(set(outside.seen)) == 1


@pytest.mark.parametrize("policy", ["park", "resend"])
def test_what_was_never_sent_is_in_no_doubt_after_it(policy: str) -> None:
    """Its intent is taken back, so that nobody is asked about it."""

    def then_leave() -> None:
        runner.leaving.set()
        raise CONNECT

    runner = sync(Outside(then_leave), on_doubt=policy)
    error, _ = stopped(runner)
    assert (error.counted, error.delay) == (False, None)
    assert runner.db.rows() == []
    runner.leaving.clear()
    assert runner.done(None)["log"] == [2]


def test_a_worker_that_leaves_waits_for_the_call_itself() -> None:
    """Only pauses are cut short."""
    runner = sync(Outside("paid"))
    runner.leaving.set()
    assert runner.done({})["log"] == ["paid"]


def test_a_pause_without_length_is_over_at_once_and_one_after_the_turn_is_refused() -> None:
    """True would mean that the worker leaves."""
    ledger = Ledger(MemoryTurn(Database(), "g", "k", "", 1))
    assert ledger.pause(0.0) is False
    ledger.close()
    with pytest.raises(ClaimLost):
        ledger.pause(10.0)
