"""Request ids: the same at each replay of a call, another for each other call."""

import re
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy, Send, interrupt

from graphs import position, request_ids
from graphs.errors import AmbiguousEffect
from tests.unit.memory_turn import AsyncRunner, Killed, Runner, killed_at
from tests.unit.test_effects import Outside, join, pay_effect

QUICKLY = RetryPolicy(initial_interval=0.01, max_attempts=3)


def latest(_: Any, new: Any) -> Any:
    return new


class State(TypedDict, total=False):
    n: Annotated[int, latest]
    log: Annotated[list[Any], join]


def flow(
    *nodes: Callable[..., Any] | tuple[str, Any], **options: Any
) -> StateGraph[Any, Any, Any, Any]:
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    before = START
    for node in nodes:
        name, run = node if isinstance(node, tuple) else (node.__name__, node)
        builder.add_node(name, run, **options)
        builder.add_edge(before, name)
        before = name
    return builder


def replayed(runner: Runner, monkeypatch: pytest.MonkeyPatch, hit: int, outside: Outside) -> None:
    """Kill after the n-th call; the replay must send the ids that were sent, and finish."""
    with killed_at(monkeypatch, "effect.after_call", hit):
        assert isinstance(runner.run({"n": 0}).error, Killed)
    before = [*outside.seen]
    runner.done(None)
    assert len(outside.seen) > len(before)
    assert outside.seen[hit - 1] == outside.seen[hit]


def test_an_id_can_stand_in_a_header_and_in_a_path() -> None:
    """fr_ and 32 hex digits, whatever goes in."""
    made = request_ids.for_call("acme/g:ключ", 2, "node:1", (("ы", 1, ("x", 2)),), "pay", None, 0)
    assert re.fullmatch(r"fr_[0-9a-f]{32}", made)
    assert re.fullmatch(r"fr_[0-9a-f]{32}", request_ids.for_key("", "pay", "\u2028"))


CALLS = st.tuples(
    st.text(),
    st.integers(1, 3),
    st.text(),
    st.lists(st.tuples(st.text(), st.integers(0, 3))).map(tuple),
    st.text(),
    st.none() | st.text(),
    st.integers(0, 3),
)


@given(CALLS, CALLS)
def test_ids_differ_where_anything_differs(one: Any, other: Any) -> None:
    """And a keyed id is never one of these."""
    assert (request_ids.for_call(*one) == request_ids.for_call(*other)) == (one == other)
    assert request_ids.for_key(one[0], one[2], one[4]) != request_ids.for_call(*one)


def test_known_ids_stay_what_they_are() -> None:
    """A changed scheme would repeat the effects of every thread under way."""
    call = request_ids.for_call("refund:A1001", 1, "n:1", (("leaf", 2, ("p", 0)),), "pay", "l", 3)
    assert call == "fr_28d023cd99ae63fb6971e5470ce18937"
    assert request_ids.for_key("acme", "pay", "o:1") == "fr_5c8aa05f8e48bb5068819242dbc1ed97"


def test_thread_generation_name_label_and_ordinal_make_ids_differ() -> None:
    """Each is another intended call, also with equal arguments (F149)."""
    outside = Outside()
    pay, other = pay_effect(outside), pay_effect(outside)

    def node(state: State) -> State:
        pay(amount=1)
        pay(amount=1)
        pay.at("line-1")(amount=1)
        other(amount=1)
        return {}

    runner = Runner(flow(node))
    for where in ({}, {"key": "k2"}, {"generation": 2}, {"tenant": "acme"}):
        runner.done({}, **where)
    assert len(set(outside.seen)) == len(outside.seen) == 16


def test_ids_depend_on_nothing_that_changes_at_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the run id nor on arguments: five attempts, one id."""
    outside = Outside()
    pay = pay_effect(outside)

    def node(state: State) -> State:
        return {"log": [pay(amount=1)]}

    runner = Runner(flow(node))
    step: Any = {}
    for attempt in range(5):
        with killed_at(monkeypatch, "effect.after_call"):
            runner.run(step, run_id=f"00000000-0000-0000-0000-00000000000{attempt}")
        step = None
    assert len(outside.seen) == 5
    assert len(set(outside.seen)) == 1


def paying(outside: Outside) -> Callable[..., Any]:
    pay = pay_effect(outside)

    def leaf(state: State) -> State:
        return {"log": [pay(amount=1)], "n": state.get("n", 0) + 1}

    return leaf


def looping(outside: Outside, rounds: int = 3) -> StateGraph[Any, Any, Any, Any]:
    """A graph whose one node pays and runs again."""
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("leaf", paying(outside))
    builder.add_edge(START, "leaf")
    builder.add_conditional_edges(
        "leaf", lambda s: "leaf" if s["n"] < rounds else END, ["leaf", END]
    )
    return builder


@pytest.mark.parametrize("hit", [1, 2, 3])
@pytest.mark.parametrize("checkpointer", [None, False, True])
def test_a_loop_in_a_subgraph_pays_each_round_once(
    monkeypatch: pytest.MonkeyPatch, checkpointer: Any, hit: int
) -> None:
    """Killed in any round: whether the subgraph goes on or starts anew, ids hold."""
    outside = Outside()
    sub = looping(outside).compile(checkpointer=checkpointer)
    runner = Runner(flow(("sub", sub)))
    runner.durability = "async"
    replayed(runner, monkeypatch, hit, outside)
    assert len(set(outside.seen)) == 3
    assert len(outside.seen) == 4


@pytest.mark.parametrize("checkpointer", [None, False])
def test_a_node_retry_around_a_subgraph_repeats_no_effect(checkpointer: Any) -> None:
    """LangGraph numbers the namespace and makes new task ids; the request ids stay."""
    outside = Outside()
    sub = looping(outside).compile(checkpointer=checkpointer)
    runs: list[int] = []

    def node(state: State) -> State:
        value = sub.invoke({"n": 0})
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("later")
        return {"log": value["log"]}

    runner = Runner(flow(node, retry_policy=QUICKLY))
    runner.durability = "async"
    assert runner.done({})["log"] == [1, 2, 3]
    assert (len(runs), len(outside.seen)) == (3, 3)


def test_a_subgraph_with_its_own_history_pays_anew_in_each_turn() -> None:
    """checkpointer=True: the namespace has no task id, the root's checkpoint stands for it."""
    outside = Outside()
    pay = pay_effect(outside)
    roots: list[str] = []

    def leaf(state: State) -> State:
        roots.append(position.here().root)
        return {"log": [pay(amount=1)]}

    runner = Runner(flow(("sub", flow(leaf).compile(checkpointer=True))))
    runner.done({"n": 0})
    runner.done({"n": 0})
    assert len(set(roots)) == 2
    assert len(set(outside.seen)) == 2


def test_a_subgraph_with_its_own_history_called_again_is_refused_unless_keyed() -> None:
    """Its steps no longer say where it is, so an id could be wrong."""
    outside = Outside()
    pay = pay_effect(outside)

    def leaf(state: State) -> State:
        effect = pay.keyed("order:1") if state.get("n") else pay
        return {"log": [effect(amount=1)]}

    sub = flow(leaf).compile(checkpointer=True)

    def node(state: State) -> State:
        sub.invoke({"n": 1})
        sub.invoke({"n": state["n"]})
        return {}

    assert isinstance(Runner(flow(node)).run({"n": 0}).error, AmbiguousEffect)
    Runner(flow(node)).done({"n": 1})
    assert len(outside.seen) == 2


def test_a_subgraph_called_twice_in_one_node_needs_labels() -> None:
    """One place, two calls: a replay could not tell which is which."""
    outside = Outside()
    pay = pay_effect(outside)

    def leaf(state: State) -> State:
        effect = pay.at(f"round-{state['n']}") if state["n"] < 10 else pay
        return {"log": [effect(amount=1)]}

    sub = flow(leaf).compile()

    def node(state: State) -> State:
        return {"log": [sub.invoke({"n": state["n"] + i})["log"][0] for i in range(2)]}

    assert Runner(flow(node)).done({"n": 0})["log"] == [1, 2]
    assert isinstance(Runner(flow(node)).run({"n": 10}).error, AmbiguousEffect)
    assert len(outside.seen) == 3


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("hit", [1, 5, 10])
def test_each_send_of_a_fan_out_pays_once(
    monkeypatch: pytest.MonkeyPatch, nested: bool, hit: int
) -> None:
    """At the root by task id, in a subgraph by step and index."""
    outside = Outside()
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("leaf", paying(outside))
    builder.add_conditional_edges(START, lambda s: [Send("leaf", {"n": 1})] * 10, ["leaf"])
    runner = Runner(flow(("sub", builder.compile())) if nested else builder)
    with killed_at(monkeypatch, "effect.after_call", hit):
        runner.run({"n": 0})
    value = runner.done(None)
    assert len(value["log"]) == 10
    assert len(set(outside.seen)) == 10


@pytest.mark.parametrize("hit", [1, 2, 3])
def test_parallel_subgraphs_of_one_place_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, hit: int
) -> None:
    """Sends to a graph inside a subgraph: each has its number among them."""
    outside = Outside()
    pay = pay_effect(outside)

    def leaf(state: State) -> State:
        return {"log": [pay(amount=state["n"])]}

    inner = flow(leaf).compile()
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(State)
    builder.add_node("inner", inner)
    builder.add_conditional_edges(
        START, lambda s: [Send("inner", {"n": s["n"] + i}) for i in range(3)], ["inner"]
    )
    runner = Runner(flow(("middle", builder.compile())))
    with killed_at(monkeypatch, "effect.after_call", hit):
        assert isinstance(runner.run({"n": 0}).error, Killed)
    runner.done(None)
    assert len(set(outside.seen)) == 3


def subgraph_of(pay: Any) -> Any:
    def leaf(state: State) -> State:
        return {"log": [pay(amount=state["n"])]}

    return flow(leaf).compile()


@pytest.mark.parametrize("hit", [1, 2, 4])
@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_tasks_with_a_subgraph_each_pay_once(
    monkeypatch: pytest.MonkeyPatch, runner: type[Runner], hit: int
) -> None:
    """Several at once, and a task within a task: whichever is killed."""
    outside = Outside()
    sub = subgraph_of(pay_effect(outside))

    @task
    def work(n: int) -> Any:
        return sub.invoke({"n": n})["log"][0]

    @task
    def around(n: int) -> Any:
        return [call.result() for call in [work(n), work(n + 1)]]

    def node(state: State) -> State:
        calls = [around(n) for n in (10, 20)]
        return {"log": [paid for call in calls for paid in call.result()]}

    made = runner(flow(node))
    with killed_at(monkeypatch, "effect.after_call", hit):
        assert isinstance(made.run({"n": 0}).error, Killed)
    assert len(made.done(None)["log"]) == 4
    assert len(set(outside.seen)) == 4


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_a_retried_node_whose_tasks_have_subgraphs_repeats_no_effect(
    runner: type[Runner],
) -> None:
    """LangGraph numbers the tasks on; their subgraphs' effects keep their ids."""
    outside = Outside()
    sub = subgraph_of(pay_effect(outside))
    runs: list[int] = []

    @task
    def work(n: int) -> Any:
        return sub.invoke({"n": n})["log"][0]

    def node(state: State) -> State:
        paid = [call.result() for call in [work(n) for n in range(3)]]
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("later")
        return {"log": paid}

    assert sorted(runner(flow(node, retry_policy=QUICKLY)).done({})["log"]) == [1, 2, 3]
    assert (len(runs), len(outside.seen), len(set(outside.seen))) == (3, 3, 3)


def test_a_retry_inside_a_subgraph_repeats_no_effect() -> None:
    """The leaf's own retry policy, and that of a graph between it and the root."""
    outside = Outside()
    pay = pay_effect(outside)
    runs: list[int] = []

    def leaf(state: State) -> State:
        paid = pay(amount=1)
        runs.append(1)
        if len(runs) % 3:
            raise ConnectionError("later")
        return {"log": [paid]}

    inner = flow(leaf).compile()
    for sub in (
        flow(leaf, retry_policy=QUICKLY).compile(),
        flow(("inner", inner), retry_policy=QUICKLY).compile(),
    ):
        outside.seen.clear()
        Runner(flow(("sub", sub))).done({})
        assert len(outside.seen) == 1
    assert len(runs) == 6


def test_an_answer_inside_a_subgraph_keeps_the_ids_around_it() -> None:
    """n1(effect) → n2(effect, interrupt, effect): each once (F070)."""
    outside = Outside()
    pay = pay_effect(outside)

    def n1(state: State) -> State:
        return {"log": [pay(amount=1)]}

    def n2(state: State) -> State:
        first = pay(amount=2)
        answer = interrupt("?")
        return {"log": [first, answer, pay(amount=3)]}

    runner = Runner(flow(("sub", flow(n1, n2).compile())))
    runner.done({})
    question = runner.snapshot().interrupts[0].id
    assert runner.done(Command(resume={question: "yes"}))["log"] == [1, 2, "yes", 3]


def test_tasks_of_the_functional_api_pay_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the second task: the first is not paid again (F071)."""
    outside = Outside()
    pay = pay_effect(outside)

    @task
    def charge(n: int) -> Any:
        return pay(amount=n)

    @entrypoint(checkpointer=InMemorySaver())
    def workflow(n: int) -> Any:
        paid = [charge(1).result(), charge(1).result()]
        return [*paid, interrupt("?")]

    runner = Runner(workflow)
    with killed_at(monkeypatch, "effect.after_call", hit=2):
        runner.run(1)
    runner.done(None)
    question = runner.snapshot().interrupts[0].id
    assert len(runner.done(Command(resume={question: "yes"}))) == 3
    assert len(set(outside.seen)) == 2
    assert len(outside.seen) == 3


def test_async_nodes_get_the_ids_that_sync_ones_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay may run on another kind of worker."""
    outside = Outside()
    runner = AsyncRunner(flow(("sub", looping(outside).compile())))
    with killed_at(monkeypatch, "effect.after_call", hit=2):
        runner.run({"n": 0})
    sync = Runner(flow(("sub", looping(outside).compile())), runner.db)
    sync.done(None)
    assert len(set(outside.seen)) == 3
    assert len(outside.seen) == 4


def test_langgraph_still_has_the_insides_that_positions_read() -> None:
    """The contract with the installed version: fails first when that changes."""
    seen: list[position.Position] = []
    configs: list[Any] = []

    def leaf(state: State) -> State:
        seen.append(position.here())
        configs.append(get_config())
        return {}

    graph = flow(("sub", flow(("inner", flow(leaf).compile())).compile())).compile(
        checkpointer=InMemorySaver()
    )
    graph.invoke({}, {"configurable": {"thread_id": "t"}})
    place = seen[0]
    assert re.fullmatch(r"sub:[0-9a-f-]{36}", place.root)
    assert place.path == (("inner", 1), ("leaf", 1, ("__pregel_pull", "leaf")))
    assert len(place.chain) == 3
    assert place.execution is configs[0]["configurable"]["__pregel_scratchpad"]
    assert not place.restarted


def test_langgraphs_retries_are_those_that_the_patch_knows() -> None:
    """A retried task's counters are renewed in one function, in sync and in async code."""
    assert position.patchable()


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_a_retried_node_that_calls_tasks_repeats_no_effect(
    runner: type[Runner], nested: bool
) -> None:
    """LangGraph numbers its tasks on from attempt to attempt; their effects keep their ids."""
    outside = Outside()
    pay = pay_effect(outside)
    runs: list[int] = []

    @task
    def nothing() -> None:
        return None

    @task
    def charge(n: int) -> Any:
        return pay(amount=n)

    @task
    def around(n: int) -> Any:
        return charge(n).result()

    def node(state: State) -> State:
        nothing().result()
        called = [(around if nested else charge)(n) for n in range(2)]
        paid = [call.result() for call in called]
        runs.append(1)
        if len(runs) < 3:
            raise ConnectionError("later")
        return {"log": paid}

    assert sorted(runner(flow(node, retry_policy=QUICKLY)).done({})["log"]) == [1, 2]
    assert (len(runs), len(outside.seen), len(set(outside.seen))) == (3, 2, 2)


@pytest.mark.parametrize("hit", [1, 2, 3])
def test_a_replay_gives_the_ids_of_whichever_attempt_was_killed(
    monkeypatch: pytest.MonkeyPatch, hit: int
) -> None:
    """One attempt is retried within the turn, another is killed with it: one id per call."""
    outside = Outside()
    pay = pay_effect(outside)
    runs: list[int] = []

    @task
    def charge(n: int) -> Any:
        return pay(amount=n)

    @entrypoint(retry_policy=QUICKLY)
    def workflow(state: Any) -> Any:
        runs.append(1)
        first = charge(1).result()
        if len(runs) % 2:
            raise ConnectionError("later")
        return [first, charge(2).result(), charge(3).result()]

    runner = Runner(workflow)
    with killed_at(monkeypatch, "effect.after_call", hit):
        assert isinstance(runner.run({"n": 0}).error, Killed)
    assert len(runner.done(None)) == 3
    assert len(set(outside.seen)) == 3
    assert len(outside.seen) == 4
