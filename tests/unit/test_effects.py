"""Effects in real LangGraph runs: recorded, replayed, in doubt, refused."""

import asyncio
import contextlib
import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from graphs.control import Cancelled, ClaimLost, RetryLater
from graphs.effects import Permanent, Retry, current_call, effect, lookup, seconds
from graphs.errors import (
    AmbiguousEffect,
    EffectArgumentsChanged,
    EffectFailed,
    EffectOutsideTurn,
    ResultUnstorable,
)
from graphs.ledger import Ledger, current_turn
from infra.settings import get_settings
from tests.unit.memory_turn import AsyncRunner, Database, Killed, Runner, killed_at

QUICK = Retry(attempts=3, max_wait=0.01)


def join(one: list[Any], other: list[Any]) -> list[Any]:
    return one + other


class State(TypedDict, total=False):
    log: Annotated[list[Any], join]


@dataclass
class Receipt:
    number: int
    amount: Decimal


class Outside:
    """The other side: remembers requests, answers as told (exceptions are raised)."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.seen: list[str] = []

    def __call__(self, request_id: str) -> Any:
        self.seen.append(request_id)
        answer = self.script.pop(0) if self.script else len(self.seen)
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer


def pay_effect(outside: Outside, **options: Any) -> Any:
    @effect("pay", **{"retry": QUICK, **options})
    def pay(amount: int = 1, *, request_id: str) -> Any:
        return outside(request_id)

    return pay


def graph(*nodes: Callable[..., Any], **options: Any) -> StateGraph[Any, Any, Any, Any]:
    """Nodes in a row."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    before = START
    for node in nodes:
        builder.add_node(node.__name__, node, **options)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder


def one_call(pay: Any) -> Runner:
    def node(state: State) -> State:
        return {"log": [pay(amount=1)]}

    return Runner(graph(node))


def test_a_call_is_recorded_with_its_result() -> None:
    """Intent, call, result: one row, done, one attempt."""
    outside = Outside("paid")
    runner = one_call(pay_effect(outside))
    assert runner.done({})["log"] == ["paid"]
    assert runner.db.rows() == [(outside.seen[0], "pay", "done", 1)]


def test_a_resend_costs_one_barrier_and_a_park_two() -> None:
    """The result of a resend goes with the next barrier, of others at once."""
    for policy, commits in (("resend", 1), ("park", 2)):
        ran = one_call(pay_effect(Outside(), on_doubt=policy)).run({})
        assert ran.turn.db.commits == commits + 1, policy  # and the end's
    assert one_call(pay_effect(Outside(), at_once=True)).run({}).turn.db.commits == 3


def test_a_result_that_goes_at_once_outlives_a_crash_right_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it would go with the next barrier, the call is made again."""
    for at_once, sent in ((True, 1), (False, 2)):
        outside = Outside()
        runner = one_call(pay_effect(outside, at_once=at_once))
        with killed_at(monkeypatch, "effect.after_result"):
            assert isinstance(runner.run({}).error, Killed)
        assert runner.done(None)["log"] == [sent]
        assert len(outside.seen) == sent


def test_effect_interrupt_effect_in_one_node_calls_each_once() -> None:
    """The node runs again after the answer; its first effect doesn't."""
    outside = Outside("first", "second")
    pay = pay_effect(outside)

    def node(state: State) -> State:
        one = pay(amount=1)
        answer = interrupt("go on?")
        return {"log": [one, answer, pay(amount=2)]}

    runner = Runner(graph(node))
    runner.done({})
    question = runner.snapshot().interrupts[0].id
    assert runner.done(Command(resume={question: "yes"}))["log"] == ["first", "yes", "second"]
    assert len(set(outside.seen)) == len(outside.seen) == 2


@pytest.mark.parametrize(
    ("point", "sent"),
    [
        ("effect.before_intent", 1),
        ("effect.after_intent", 1),
        ("effect.after_call", 2),
        ("effect.after_result", 2),
    ],
)
def test_a_resend_after_a_crash_uses_the_same_id(
    monkeypatch: pytest.MonkeyPatch, point: str, sent: int
) -> None:
    """Whatever the crash lost, the outside sees one request id."""
    outside = Outside("paid", "paid")
    runner = one_call(pay_effect(outside))
    with killed_at(monkeypatch, point):
        assert isinstance(runner.run({}).error, Killed)
    assert runner.done(None)["log"] == ["paid"]
    assert len(outside.seen) == sent
    assert len(set(outside.seen)) == 1
    assert runner.db.rows()[0][2:] == ("done", 1 if point == "effect.before_intent" else 2)


def test_a_result_noted_before_a_crash_of_the_next_effect_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second intent's barrier carries the first result."""
    outside = Outside()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        return {"log": [pay(amount=1), pay(amount=2)]}

    runner = Runner(graph(node))
    with killed_at(monkeypatch, "effect.after_intent", hit=2):
        runner.run({})
    assert runner.done(None)["log"] == [1, 2]
    assert len(outside.seen) == 2


@pytest.mark.parametrize("asks", [False, True])
def test_calls_that_are_alike_stay_apart_in_a_replay(
    asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the same arguments are two, also where the first one's result was recorded by an
    attempt before: after a crash between them, and after the answer to a question."""
    outside = Outside()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        one = pay(amount=1)
        two = pay(amount=1)
        if asks:
            interrupt("go on?")
        return {"log": [one, two, pay(amount=1)]}

    runner = Runner(graph(node))
    if asks:
        runner.done({})
        assert runner.done(Command(resume="yes"))["log"] == [1, 2, 3]
    else:
        with killed_at(monkeypatch, "effect.after_intent", hit=2):
            assert isinstance(runner.run({}).error, Killed)
        assert runner.done(None)["log"] == [1, 2, 3]
    assert len(set(outside.seen)) == len(outside.seen) == 3


def test_failures_that_are_alike_stay_apart_in_a_replay() -> None:
    """A refusal that was recorded is that of its own call only."""
    outside = Outside(Permanent("no"), "yes")
    pay = pay_effect(outside)

    def node(state: State) -> State:
        with contextlib.suppress(EffectFailed):
            pay(amount=1)
        two = pay(amount=1)
        interrupt("go on?")
        return {"log": [two]}

    runner = Runner(graph(node))
    runner.done({})
    assert runner.done(Command(resume="go"))["log"] == ["yes"]
    assert len(outside.seen) == 2


def test_a_node_retry_within_the_turn_uses_its_memory() -> None:
    """LangGraph's retry policy runs the node anew; the effect is not called again."""
    outside = Outside("paid")
    pay = pay_effect(outside)
    runs = []

    def node(state: State) -> State:
        paid = pay(amount=1)
        runs.append(paid)
        if len(runs) < 3:
            raise ConnectionError("later")
        return {"log": [paid]}

    policy = RetryPolicy(initial_interval=0.01, max_attempts=3)
    assert Runner(graph(node, retry_policy=policy)).done({})["log"] == ["paid"]
    assert (len(runs), len(outside.seen)) == (3, 1)


def test_a_retry_in_the_node_after_an_unclear_failure_is_the_same_call() -> None:
    """A bug after the money moved must not become a second request."""
    outside = Outside(KeyError("refund_id"), "paid", "another")
    pay = pay_effect(outside)

    def node(state: State) -> State:
        try:
            pay(amount=1)
        except KeyError:
            pay(amount=1)
        return {"log": [pay(amount=1)]}

    runner = Runner(graph(node))
    assert runner.done({})["log"] == ["another"]
    first, again, second = outside.seen
    assert first == again != second


def test_other_arguments_under_a_known_id_are_refused() -> None:
    """At a replay, and within the turn, before anything is sent."""
    outside = Outside()
    pay = pay_effect(outside)
    amounts = iter([1, 2])

    def node(state: State) -> State:
        pay(amount=next(amounts))
        interrupt("?")
        return {}

    runner = Runner(graph(node))
    runner.done({})
    question = runner.snapshot().interrupts[0].id
    ran = runner.run(Command(resume={question: 1}))
    assert isinstance(ran.error, EffectArgumentsChanged)
    assert len(outside.seen) == 1


def test_first_run_and_replay_see_the_same_value() -> None:
    """What the node gets is what was stored: classes where declared, clean text, no NaN."""
    seen = []

    @effect("typed")
    def typed(*, request_id: str) -> Receipt:
        return Receipt(1, Decimal("1.50"))

    @effect("untyped")
    def untyped(*, request_id: str):  # type: ignore[no-untyped-def]
        return {"receipt": Receipt(1, Decimal(1)), "text": "a\x00b", "n": float("nan"), "t": (1,)}

    def node(state: State) -> State:
        seen.append((typed(), untyped()))
        interrupt("?")
        return {}

    runner = Runner(graph(node))
    runner.done({})
    runner.run(Command(resume={runner.snapshot().interrupts[0].id: 1}))
    assert seen[0] == seen[1]
    receipt, plain = seen[0]
    assert receipt == Receipt(1, Decimal("1.50"))
    assert plain == {
        "receipt": {"number": 1, "amount": Decimal(1)},
        "text": "a\ufffdb",
        "n": None,
        "t": [1],
    }


@pytest.mark.parametrize("value", [object(), 2**70, "x" * 2**21])
def test_a_result_that_cannot_be_stored_fails_for_good(value: Any) -> None:
    """Recorded as done, unstorable; never in doubt, never called again."""
    outside = Outside(value)
    runner = one_call(pay_effect(outside))
    assert isinstance(runner.run({}).error, ResultUnstorable)
    assert isinstance(runner.run(None).error, ResultUnstorable)
    assert [r[2] for r in runner.db.rows()] == ["unstorable"]
    assert len(outside.seen) == 1


def test_a_permanent_failure_is_raised_again_without_calling() -> None:
    """Recorded at once, with status and detail."""
    outside = Outside(refused(422, "other body"))
    runner = one_call(pay_effect(outside))
    for step in ({}, None):
        error = runner.run(step).error
        assert isinstance(error, EffectFailed)
        assert error.status == 422
        assert "other body" in error.detail
    assert len(outside.seen) == 1


def refused(status: int, text: str = "", **headers: str) -> Exception:
    import httpx

    response = httpx.Response(
        status, text=text, headers=headers, request=httpx.Request("POST", "http://shop/refunds")
    )
    return httpx.HTTPStatusError(f"{status}", request=response.request, response=response)


def test_a_request_id_given_by_the_caller_never_goes_out() -> None:
    """A model that invents one changes nothing (F155)."""
    outside = Outside()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        return {"log": [pay(amount=1, request_id="abc")]}

    runner = Runner(graph(node))
    runner.done({})
    assert outside.seen == [runner.db.rows()[0][0]]
    assert outside.seen[0].startswith("fr_")


def test_outside_of_a_turn_or_a_node_nothing_is_sent() -> None:
    """No ledger, no node, a bare thread, or a graph with a thread of its own."""
    outside = Outside()
    pay = pay_effect(outside)
    with pytest.raises(EffectOutsideTurn):
        pay(amount=1)

    def bare_thread(state: State) -> State:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(pay, amount=1).result()
        return {}

    def own_thread(state: State) -> State:
        inner = graph(lambda_node(pay)).compile()
        inner.invoke({}, {"configurable": {"thread_id": "mine"}})
        return {}

    for node in (bare_thread, own_thread):
        assert isinstance(Runner(graph(node)).run({}).error, EffectOutsideTurn)
    token = current_turn.set(Ledger(Runner(graph(own_thread)).run({}).turn))
    with pytest.raises(EffectOutsideTurn):
        pay(amount=1)
    current_turn.reset(token)
    assert outside.seen == []


def lambda_node(pay: Any) -> Callable[..., Any]:
    def inner(state: State) -> State:
        return {"log": [pay(amount=1)]}

    return inner


def test_overlapping_calls_in_threads_are_refused() -> None:
    """The second is refused before it sends; labels tell calls apart."""
    outside = Outside()
    meet = threading.Event()

    @effect("pay")
    def pay(n: int, *, request_id: str) -> int:
        outside(request_id)
        meet.wait(5)
        return n

    def node(state: State) -> State:
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(contextvars.copy_context().run, pay, 1)
            while not outside.seen:
                time.sleep(0.001)
            try:
                pay(2)
            finally:
                meet.set()
            return {"log": [one.result()]}

    def labelled(state: State) -> State:
        with ThreadPoolExecutor(2) as pool:
            calls = [
                pool.submit(contextvars.copy_context().run, pay.at(f"line-{n}"), n)
                for n in range(2)
            ]
            return {"log": [c.result() for c in calls]}

    assert isinstance(Runner(graph(node)).run({}).error, AmbiguousEffect)
    assert len(outside.seen) == 1
    assert Runner(graph(labelled)).done({})["log"] == [0, 1]


def test_overlapping_calls_in_asyncio_are_refused_before_either_is_sent() -> None:
    """gather without labels sends nothing at all."""
    sent = []

    @effect("pay")
    async def pay(n: int, *, request_id: str) -> int:
        sent.append(request_id)
        await asyncio.sleep(0.01)
        return n

    async def node(state: State) -> State:
        return {"log": [*await asyncio.gather(pay(1), pay(2))]}

    async def labelled(state: State) -> State:
        return {"log": [*await asyncio.gather(pay.at("a")(1), pay.at("b")(2))]}

    runner = AsyncRunner(graph(node))
    assert isinstance(runner.run({}).error, AmbiguousEffect)
    assert sent == []
    assert runner.db.rows() == []
    assert AsyncRunner(graph(labelled)).done({})["log"] == [1, 2]
    assert len(set(sent)) == 2


def test_async_effects_are_replayed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same flow as sync ones."""
    outside = Outside("paid", "paid")

    @effect("pay")
    async def pay(n: int, *, request_id: str) -> Any:
        await asyncio.sleep(0)
        assert current_call().request_id == request_id
        return outside(request_id)

    async def node(state: State) -> State:
        return {"log": [await pay(1)]}

    runner = AsyncRunner(graph(node))
    with killed_at(monkeypatch, "effect.after_call"):
        runner.run({})
    assert runner.done(None)["log"] == ["paid"]
    assert len(outside.seen) == 2
    assert len(set(outside.seen)) == 1


def test_a_keyed_effect_happens_once_over_threads_and_generations() -> None:
    """The key is the identity; the tenant keeps others' keys apart."""
    outside = Outside()
    db = Database()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        return {"log": [pay.keyed("order:1")(amount=1)]}

    runner = Runner(graph(node), db)
    for run in ({"key": "a"}, {"key": "b"}, {"key": "a", "generation": 2}):
        assert runner.done({}, **run)["log"] == [1]
    assert runner.done({}, key="a", tenant="acme")["log"] == [2]
    assert [*db.keyed] == ["/pay:order:1", "acme/pay:order:1"]
    assert db.locks == {}


def test_a_key_held_by_another_thread_comes_back_later_uncounted() -> None:
    """Busy is nobody's failure."""
    outside = Outside()
    db = Database()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        return {"log": [pay.keyed("order:1")(amount=1)]}

    db.locks["/pay:order:1"] = -1
    runner = Runner(graph(node), db)
    error = runner.run({}).error
    assert isinstance(error, RetryLater)
    assert not error.counted
    assert error.delay is not None
    assert 0.2 <= error.delay <= 1
    assert outside.seen == []
    del db.locks["/pay:order:1"]
    assert runner.done(None)["log"] == [1]


def test_control_errors_pass_through_whatever_catches_exceptions() -> None:
    """A node's except and its retry policy don't go on with a lost claim."""
    outside = Outside()
    pay = pay_effect(outside)
    runs = []

    def node(state: State) -> State:
        runs.append(1)
        try:
            pay(amount=1)
        except Exception:
            return {"log": ["swallowed"]}
        return {}

    runner = Runner(graph(node, retry_policy=RetryPolicy(initial_interval=0.01)))
    runner.db.cancelled.add("g:k")
    assert isinstance(runner.run({}).error, Cancelled)
    assert len(runs) == 1
    assert outside.seen == []


def test_a_swallowed_control_error_still_stops_the_turn() -> None:
    """No later effect begins, and the ledger tells the worker."""
    outside = Outside(*[TimeoutError()] * 3)
    pay = pay_effect(outside)

    def node(state: State) -> State:
        for _ in range(2):
            with contextlib.suppress(BaseException):
                pay(amount=1)
        return {"log": ["as if nothing had happened"]}

    ran = Runner(graph(node)).run({})
    assert isinstance(ran.ledger.stopped, RetryLater)
    assert len(outside.seen) == 3


def test_a_left_over_thread_can_neither_send_nor_write() -> None:
    """After the turn's end its calls are refused, before sending and before recording."""
    outside = Outside()
    go_on, begun = threading.Event(), threading.Event()
    caught: list[BaseException] = []
    pay = pay_effect(outside)

    @effect("slow")
    def slow(*, request_id: str) -> int:
        begun.set()
        go_on.wait(5)
        return 1

    def late(call: Any) -> None:
        try:
            call()
        except BaseException as exc:
            caught.append(exc)

    threads = []

    def node(state: State) -> State:
        for call in (slow, lambda: (go_on.wait(5), pay(amount=1))):
            context = contextvars.copy_context()
            threads.append(threading.Thread(target=context.run, args=(late, call)))
            threads[-1].start()
        begun.wait(5)
        return {}

    runner = Runner(graph(node))
    runner.done({})
    go_on.set()
    for thread in threads:
        thread.join(5)
    assert [type(c) for c in caught] == [ClaimLost, ClaimLost]
    assert outside.seen == []
    assert [(r[1], r[2]) for r in runner.db.rows()] == [("slow", "intent")]


def test_a_short_turn_timeout_shortens_the_trust_in_a_barrier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim that the sweep may have ended by now is not trusted without asking."""
    monkeypatch.setenv("FLEET_TURN_TIMEOUT", "1")
    get_settings.cache_clear()
    outside = Outside()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        ledger = current_turn.get()
        assert ledger is not None
        turn: Any = ledger.turn
        turn.last_barrier_age = lambda: 0.6
        pay(amount=1)
        assert turn.checks == 1
        return {"log": []}

    try:
        assert Runner(graph(node)).run({}).error is None
    finally:
        monkeypatch.undo()
        get_settings.cache_clear()


def test_the_claim_is_checked_when_its_last_confirmation_is_old() -> None:
    """Before each attempt: within 2 s of a barrier, or ask first."""
    outside = Outside()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        ledger = current_turn.get()
        assert ledger is not None
        turn: Any = ledger.turn
        pay(amount=1)
        assert turn.checks == 0
        turn.last_barrier_age = lambda: 2.5
        pay(amount=2)
        assert turn.checks == 1
        turn.db.epochs[turn.thread_id] += 1
        return {"log": [pay(amount=3)]}

    assert isinstance(Runner(graph(node)).run({}).error, ClaimLost)
    assert len(outside.seen) == 2


def test_declarations_that_cannot_work_are_refused() -> None:
    """At import, not in the middle of a turn."""

    async def ask(request_id: str) -> None: ...

    def sync(*, request_id: str) -> None: ...

    def positional(request_id: str) -> None: ...

    def none() -> None: ...

    for function in (positional, none):
        with pytest.raises(TypeError, match="keyword-only"):
            effect("x")(function)
    with pytest.raises(TypeError, match="async lookup"):
        effect("x", on_doubt=lookup(ask))(sync)
    for bad in ({"on_doubt": "hope"}, {"on_doubt": "park", "lookup": ask}, {"key_ttl": "1 week"}):
        with pytest.raises(ValueError):
            effect("x", **bad)(sync)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        effect("a:b")
    for bad_key in ("", " ", "a\x00b", "x" * 501):
        with pytest.raises(ValueError):
            effect("x")(sync).keyed(bad_key)


def test_durations() -> None:
    """As people write them."""
    assert [seconds(d) for d in ("24h", "15m", "30s", "7d", "500ms", 2)] == [
        86400,
        900,
        30,
        604800,
        0.5,
        2,
    ]


def test_effects_look_like_their_function_without_the_request_id() -> None:
    """So that a model is not shown one."""
    from langchain_core.tools import StructuredTool

    @effect("pay")
    def pay(amount: int, *, request_id: str) -> int:
        """Pay it."""
        return amount

    tool = StructuredTool.from_function(pay)
    assert (tool.name, [*tool.args]) == ("pay", ["amount"])
