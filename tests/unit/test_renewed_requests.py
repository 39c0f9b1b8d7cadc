"""`fleet retry --new-request`: a recorded failure gives way to a call under another id."""

from typing import Any

import pytest
from langgraph.types import Command, interrupt

from graphs.errors import EffectFailed
from tests.unit.memory_turn import Runner
from tests.unit.test_effects import Outside, State, graph, one_call, pay_effect, refused


def renew(runner: Runner, renewed: str) -> None:
    """What fleet.retry leaves: the newest failed rows name the id that takes their place."""
    for table in (runner.db.effects, runner.db.keyed):
        for row in table.values():
            if row.state == "failed":
                row.error = {"renewed_as": renewed} | (row.error or {})


def paying(pay: Any, key: str | None) -> Runner:
    def node(state: State) -> State:
        return {"log": [(pay.keyed(key) if key else pay)(amount=1)]}

    return Runner(graph(node))


@pytest.mark.parametrize("key", [None, "order:1"])
@pytest.mark.parametrize("policy", ["resend", "park"])
def test_a_renewed_call_is_made_once_under_the_new_id(key: str | None, policy: str) -> None:
    """The failed row stays; the replay finds the new one's result."""
    outside = Outside(refused(422), "paid")
    runner = paying(pay_effect(outside, on_doubt=policy), key)
    assert isinstance(runner.run({}).error, EffectFailed)
    first = outside.seen[0]
    renew(runner, "fr_second")
    assert runner.done(None)["log"] == ["paid"]
    assert outside.seen == [first, "fr_second"]
    assert [row[2] for row in runner.db.rows()] == ["failed", "done"]


def test_a_failure_is_renewed_again_and_again() -> None:
    """Each new request can fail, too."""
    outside = Outside(refused(422), refused(422), "paid")
    runner = paying(pay_effect(outside), "order:1")
    runner.run({})
    renew(runner, "fr_second")
    assert isinstance(runner.run(None).error, EffectFailed)
    renew(runner, "fr_third")
    assert runner.done(None)["log"] == ["paid"]
    assert outside.seen[1:] == ["fr_second", "fr_third"]


def test_another_thread_finds_the_result_of_a_renewed_key() -> None:
    """A business effect stays one effect, whichever id it was made under."""
    outside = Outside(refused(422), "paid")
    runner = paying(pay_effect(outside), "order:1")
    runner.run({})
    renew(runner, "fr_second")
    runner.done(None)
    assert runner.done({}, key="other")["log"] == ["paid"]
    assert len(outside.seen) == 2


def test_a_node_that_runs_again_knows_the_renewed_result() -> None:
    """After the answer to its own question, from the ledger."""
    outside = Outside(refused(422), "paid")
    pay = pay_effect(outside)

    def node(state: State) -> State:
        paid = pay(amount=1)
        return {"log": [paid, interrupt("go on?")]}

    runner = Runner(graph(node))
    runner.run({})
    renew(runner, "fr_second")
    runner.run(None)
    (question,) = runner.snapshot().interrupts
    assert runner.done(Command(resume={question.id: "yes"}))["log"] == ["paid", "yes"]
    assert outside.seen[1:] == ["fr_second"]


def test_a_failure_that_nobody_renewed_is_raised_again() -> None:
    """Without a call."""
    outside = Outside(refused(422))
    runner = one_call(pay_effect(outside))
    for step in ({}, None):
        assert isinstance(runner.run(step).error, EffectFailed)
    assert len(outside.seen) == 1
