"""What others met in LangGraph's graphs and agents, in memory: see docs/faults.md."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentState, ToolRetryMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.serde import _msgpack
from langgraph.func import entrypoint, task
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from graphs.copies import copied
from graphs.loading import compiled
from tests.graphs.documented.scripted import Scripted, calls
from tests.unit.memory_turn import AsyncRunner, Runner
from tests.unit.test_effects import Outside, pay_effect

ASK = {"messages": [{"role": "user", "content": "go"}]}


def answer(messages: list[BaseMessage]) -> str | AIMessage:
    said = [str(m.content) for m in messages if isinstance(m, ToolMessage)]
    return said[-1] if said else calls(("ask", {}, "call-1"))


def test_a_tool_that_asks_is_not_taken_for_one_that_failed() -> None:
    """Its question passes a middleware that tries again, and the answer reaches it."""
    runs: list[int] = []

    @tool
    def ask() -> str:
        """Ask."""
        runs.append(1)
        return f"heard {interrupt('which?')}"

    retries = ToolRetryMiddleware(max_retries=3, initial_delay=0.01)
    runner = Runner(create_agent(Scripted(answer=answer), [ask], middleware=[retries]))
    runner.done(ASK)
    (question,) = runner.snapshot().interrupts
    assert question.value == "which?"
    assert len(runs) == 1
    value = runner.done(Command(resume={question.id: "this"}))
    assert value["messages"][-1].content == "heard this"
    assert len(runs) == 2


@pytest.mark.parametrize("runner", [Runner, AsyncRunner])
def test_a_question_of_a_nested_entrypoint_repeats_no_effect(runner: type[Runner]) -> None:
    """Tasks before it and in it that have paid do not pay again when the answer comes."""
    outside = Outside("one", "two", "three")
    pay = pay_effect(outside)

    @task
    def charge(n: int) -> Any:
        return pay(amount=n)

    @entrypoint()
    def inner(n: int) -> Any:
        return [charge(n).result(), interrupt("go on?")]

    @entrypoint()
    def outer(state: Any) -> Any:
        return [charge(1).result(), *inner.invoke(2), charge(3).result()]

    ran = runner(outer)
    ran.done({"n": 0})
    (question,) = ran.snapshot().interrupts
    assert len(outside.seen) == 2
    ran.done(Command(resume={question.id: "yes"}))
    assert len(outside.seen) == len(set(outside.seen)) == 3


def test_a_model_that_calls_its_tool_again_pays_once_with_a_key() -> None:
    """A call of its own each time; the order is what is to be paid once."""
    outside = Outside("paid")
    pay = pay_effect(outside)

    @tool
    def refund(order: str) -> str:
        """Refund an order."""
        return str(pay.keyed(f"refund:{order}")(amount=1))

    def insist(messages: list[BaseMessage]) -> str | AIMessage:
        made = sum(isinstance(m, ToolMessage) for m in messages)
        return calls(("refund", {"order": "A1"}, f"call-{made}")) if made < 3 else "done"

    runner = Runner(create_agent(Scripted(answer=insist), [refund]))
    value = runner.done(ASK)
    assert [m.content for m in value["messages"] if isinstance(m, ToolMessage)] == ["paid"] * 3
    assert len(outside.seen) == 1


class Told(BaseModel):
    text: str


class Knowing(AgentState[Any]):
    told: Told


def test_copies_keep_the_classes_that_strict_mode_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of agents, whose own copy has lost them."""
    monkeypatch.setattr(_msgpack, "STRICT_MSGPACK_ENABLED", True)
    monkeypatch.setattr("langgraph._internal._serde.STRICT_MSGPACK_ENABLED", True)
    agent = create_agent(Scripted(answer=answer), [], state_schema=Knowing)
    lent: Any = copied(compiled(agent, "agent"), {"name": "lent"})
    assert any(name == "Told" for *_, name in lent._serde_allowlist)
