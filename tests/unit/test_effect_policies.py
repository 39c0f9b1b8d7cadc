"""What each policy makes of failures and of doubt."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from graphs.control import InDoubt, RetryLater
from graphs.effects import Found, Permanent, Retry, Transient, effect, lookup
from graphs.errors import EffectFailed
from tests.unit.memory_turn import AsyncRunner, Killed, Ran, Runner, killed_at
from tests.unit.test_effects import QUICK, Outside, State, graph, one_call, pay_effect, refused

REQUEST = httpx.Request("POST", "http://shop/refunds")
CONNECT = httpx.ConnectError("refused", request=REQUEST)
TIMED_OUT = httpx.ReadTimeout("slow", request=REQUEST)
LOST = httpx.RemoteProtocolError("server disconnected", request=REQUEST)

#: What a policy and a failure have in common: the call may have happened.
AMBIGUOUS = [TIMED_OUT, LOST, ConnectionResetError(), refused(500), refused(503), Transient("?")]


def later(ran: Ran, counted: bool) -> RetryLater:
    error = ran.error
    assert isinstance(error, RetryLater), error
    assert error.counted is counted
    return error


def states(runner: Runner) -> list[tuple[str, int]]:
    return [(state, attempts) for _, _, state, attempts in runner.db.rows()]


def asking(outside: Outside, *answers: Any, **options: Any) -> tuple[Runner, list[str]]:
    """A runner of an effect with a lookup that gives these answers, and what was asked."""
    asked: list[str] = []
    script = [*answers]

    def ask(request_id: str) -> Any:
        asked.append(request_id)
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return one_call(pay_effect(outside, on_doubt=lookup(ask), timeout=1, **options)), asked


# Known not to have happened


@pytest.mark.parametrize("policy", ["resend", "park", "lookup"])
@pytest.mark.parametrize("failure", [CONNECT, refused(429), refused(425), ConnectionRefusedError()])
def test_what_was_never_done_is_tried_again_by_every_policy(
    policy: str, failure: Exception
) -> None:
    """Same request id, one row, all attempts counted; no lookup is asked."""
    outside = Outside(failure, failure, "paid")
    runner = (
        asking(outside)[0] if policy == "lookup" else one_call(pay_effect(outside, on_doubt=policy))
    )
    assert runner.done({})["log"] == ["paid"]
    assert len(set(outside.seen)) == 1
    assert states(runner) == [("done", 3)]


@pytest.mark.parametrize("policy", ["resend", "park", "lookup"])
def test_what_was_never_done_leaves_no_doubt_behind(policy: str) -> None:
    """After the last attempt the intent is taken back, and the turn comes again, counted."""
    outside = Outside(*[CONNECT] * 3, "paid")
    runner = (
        asking(outside)[0] if policy == "lookup" else one_call(pay_effect(outside, on_doubt=policy))
    )
    later(runner.run({}), counted=True)
    assert runner.db.rows() == []
    assert runner.done(None)["log"] == ["paid"]
    assert len(set(outside.seen)) == 1


def test_retry_after_is_observed_and_a_long_one_gives_the_slot_back() -> None:
    """Short: waited for here. Longer than max_wait: a delay for the turn."""
    outside = Outside(refused(429, **{"Retry-After": "0.2"}), "paid")
    started = time.monotonic()
    one_call(pay_effect(outside, retry=Retry(attempts=2, max_wait=1))).done({})
    assert time.monotonic() - started >= 0.2
    outside = Outside(refused(429, **{"Retry-After": "3600"}))
    ran = one_call(pay_effect(outside)).run({})
    assert later(ran, counted=True).delay == 3600
    assert len(outside.seen) == 1


# May have happened


@pytest.mark.parametrize("failure", [*AMBIGUOUS, refused(409), refused(408)])
def test_resend_sends_again_when_the_outcome_is_unclear(failure: Exception) -> None:
    """The outside knows the id. After the last attempt: later, and the intent stays."""
    outside = Outside(failure, failure, failure, failure, "paid")
    runner = one_call(pay_effect(outside))
    later(runner.run({}), counted=True)
    assert states(runner) == [("intent", 3)]
    assert runner.done(None)["log"] == ["paid"]
    assert len(set(outside.seen)) == 1
    assert states(runner) == [("done", 5)]


@pytest.mark.parametrize("failure", [*AMBIGUOUS, KeyError("bug")])
def test_park_never_sends_twice(failure: Exception) -> None:
    """It waits for the call to settle, then a person is asked; it is never sent again."""
    outside = Outside(failure)
    runner = one_call(pay_effect(outside, on_doubt="park", timeout=1))
    waiting = later(runner.run({}), counted=False)
    assert waiting.delay == pytest.approx(6, abs=0.5)
    runner.db.offset += 3
    assert later(runner.run(None), counted=False).delay == pytest.approx(3, abs=0.5)
    runner.db.offset += 3.1
    for _ in range(2):
        error = runner.run(None).error
        assert isinstance(error, InDoubt)
        assert (error.request_id, error.name) == (outside.seen[0], "pay")
    assert len(outside.seen) == 1
    assert states(runner) == [("intent", 1)]


def test_park_after_a_crash_asks_a_person_only_once_it_has_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first call may still be under way."""
    outside = Outside()
    runner = one_call(pay_effect(outside, on_doubt="park", timeout=1))
    with killed_at(monkeypatch, "effect.after_call"):
        assert isinstance(runner.run({}).error, Killed)
    later(runner.run(None), counted=False)
    runner.db.offset += 7
    assert isinstance(runner.run(None).error, InDoubt)
    assert len(outside.seen) == 1


def test_park_takes_409_for_a_refusal() -> None:
    """The outside knows no request ids, so this is a conflict of business."""
    assert isinstance(
        one_call(pay_effect(Outside(refused(409)), on_doubt="park")).run({}).error, EffectFailed
    )


@pytest.mark.parametrize("failure", [*AMBIGUOUS, refused(409), KeyError("bug")])
def test_lookup_finds_what_happened(failure: Exception) -> None:
    """Asked at once after an unclear failure; what it finds is the result."""
    outside = Outside(failure)
    runner, asked = asking(outside, "refund-1")
    assert runner.done({})["log"] == ["refund-1"]
    assert asked == outside.seen
    assert states(runner) == [("done", 1)]


def test_lookup_can_find_nothing_as_a_result() -> None:
    """Found(None) is an answer, None is not."""
    runner, _ = asking(Outside(TIMED_OUT), Found(None))
    assert runner.done({})["log"] == [None]


def test_not_found_is_believed_only_once_the_call_has_settled() -> None:
    """Before that the first call may still arrive; then it is sent again with the same id."""
    outside = Outside(TIMED_OUT, "paid")
    runner, asked = asking(outside, None, None, None)
    assert later(runner.run({}), counted=True).delay == pytest.approx(6, abs=0.5)
    runner.db.offset += 4
    assert later(runner.run(None), counted=False).delay == pytest.approx(2, abs=0.5)
    runner.db.offset += 2.1
    assert runner.done(None)["log"] == ["paid"]
    assert len(asked) == 3
    assert len(set(outside.seen)) == 1
    assert states(runner) == [("done", 2)]


def test_settle_counts_from_the_latest_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call sent again after doubt must settle anew."""
    outside = Outside()
    runner, _ = asking(outside, None, None, None)
    with killed_at(monkeypatch, "effect.after_call"):
        runner.run({})
    runner.db.offset += 7
    with killed_at(monkeypatch, "effect.after_call"):
        runner.run(None)
    assert len(outside.seen) == 2
    later(runner.run(None), counted=False)
    assert len(outside.seen) == 2


def test_a_lookup_that_fails_is_asked_again_later() -> None:
    """Whatever it failed with: nobody may guess."""
    runner, _ = asking(Outside(TIMED_OUT), refused(503), KeyError("bug"), "refund-1")
    later(runner.run({}), counted=True)
    later(runner.run(None), counted=True)
    assert runner.done(None)["log"] == ["refund-1"]


def test_a_lookup_gets_the_arguments_that_it_names() -> None:
    """And always the request id."""
    got: list[Any] = []

    @effect("pay", lookup=lambda request_id, amount: got.append((request_id, amount)) or "found")
    def pay(amount: int, note: str, *, request_id: str) -> Any:
        raise TIMED_OUT

    def node(state: State) -> State:
        return {"log": [pay(5, note="n")]}

    runner = Runner(graph(node))
    assert runner.done({})["log"] == ["found"]
    assert got == [(runner.db.rows()[0][0], 5)]


def test_resend_becomes_park_after_its_key_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outside may have forgotten the id, so a person decides."""
    outside = Outside()
    runner = one_call(pay_effect(outside, key_ttl="1h"))
    with killed_at(monkeypatch, "effect.after_call"):
        runner.run({})
    runner.db.offset += 3500
    with killed_at(monkeypatch, "effect.after_call"):
        runner.run(None)
    runner.db.offset += 200
    error = runner.run(None).error
    assert isinstance(error, InDoubt)
    assert "honoured" in error.reason
    assert len(outside.seen) == 2


def test_a_ttl_that_ends_between_attempts_ends_them() -> None:
    """It is looked at before each attempt."""
    outside = Outside(TIMED_OUT, TIMED_OUT)
    runner = one_call(pay_effect(outside, key_ttl="1h"))

    def an_hour_passes() -> Any:
        runner.db.offset += 3601
        raise TIMED_OUT

    outside.script[:] = [an_hour_passes]
    assert isinstance(runner.run({}).error, InDoubt)
    assert len(outside.seen) == 1


# Permanent, and bugs


@pytest.mark.parametrize("policy", ["resend", "park"])
@pytest.mark.parametrize(
    ("failure", "status"), [(refused(400), 400), (refused(404), 404), (Permanent("no"), None)]
)
def test_a_refusal_is_recorded_at_once(policy: str, failure: Exception, status: int | None) -> None:
    """Even when the process dies right after."""
    outside = Outside(failure)
    pay = pay_effect(outside, on_doubt=policy)

    def node(state: State) -> State:
        try:
            return {"log": [pay(amount=1)]}
        except EffectFailed as exc:
            if len(outside.seen) == 1 and outside.script == []:
                outside.script.append("never")
                raise Killed() from exc
            return {"log": [exc.status]}

    runner = Runner(graph(node))
    runner.run({})
    assert states(runner) == [("failed", 1)]
    assert runner.done(None)["log"] == [status]
    assert len(outside.seen) == 1


def test_a_bug_of_a_resend_is_raised_as_it_is_and_its_intent_stays() -> None:
    """The next attempt of the turn sends it again with the same id."""
    outside = Outside(KeyError("bug"), "paid")
    runner = one_call(pay_effect(outside))
    assert isinstance(runner.run({}).error, KeyError)
    assert states(runner) == [("intent", 1)]
    assert runner.done(None)["log"] == ["paid"]
    assert len(set(outside.seen)) == 1


# Async


def test_the_timeout_ends_an_async_call_whose_outcome_is_then_unclear() -> None:
    """resend sends again; park asks a person."""
    calls: list[str] = []

    def node_of(on_doubt: Any) -> Callable[..., Any]:
        @effect("pay", on_doubt=on_doubt, timeout=0.05, retry=QUICK)
        async def pay(*, request_id: str) -> str:
            calls.append(request_id)
            if len(calls) == 1:
                await asyncio.sleep(5)
            return "paid"

        async def node(state: State) -> State:
            return {"log": [await pay()]}

        return node

    started = time.monotonic()
    assert AsyncRunner(graph(node_of("resend"))).done({})["log"] == ["paid"]
    assert time.monotonic() - started < 2
    assert len(calls) == 2
    calls.clear()
    later(AsyncRunner(graph(node_of("park"))).run({}), counted=False)
    assert len(calls) == 1


def test_async_effects_take_sync_and_async_lookups() -> None:
    """Either is asked; a sync one doesn't hold the loop."""

    async def ask_async(request_id: str) -> str:
        return "found"

    def ask_sync(request_id: str) -> str:
        return "found"

    for ask in (ask_async, ask_sync):

        @effect("pay", on_doubt=lookup(ask))
        async def pay(*, request_id: str) -> str:
            raise TIMED_OUT

        async def node(state: State, pay: Any = pay) -> State:
            return {"log": [await pay()]}

        assert AsyncRunner(graph(node)).done({})["log"] == ["found"]


def test_a_cancelled_async_call_stays_in_doubt() -> None:
    """Cancellation is no failure to be retried, and the intent stays."""
    calls: list[str] = []

    @effect("pay", timeout=20)
    async def pay(*, request_id: str) -> str:
        calls.append(request_id)
        if len(calls) == 1:
            await asyncio.sleep(5)
        return "paid"

    async def node(state: State) -> State:
        try:
            async with asyncio.timeout(0.05):
                await pay()
        except TimeoutError:
            return {"log": [await pay()]}
        return {}

    runner = AsyncRunner(graph(node))
    assert runner.done({})["log"] == ["paid"]
    assert len(set(calls)) == 1
    assert states(runner) == [("done", 2)]
