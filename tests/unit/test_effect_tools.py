"""effect_tool: each call that a model makes of a tool happens once."""

import asyncio
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langgraph.prebuilt import InjectedState

from graphs import reach
from graphs.control import RetryLater
from graphs.effects import AsyncEffect, Effect, effect
from graphs.errors import EffectFailed
from graphs.tools import effect_tool
from tests.graphs.documented.scripted import Scripted, calls
from tests.unit.memory_turn import AsyncRunner, Killed, Runner, killed_at

ASK = {"messages": [{"role": "user", "content": "go"}]}


def agent(*tools: BaseTool, **arguments: Any) -> Any:
    """An agent that calls each tool once, all in one message, and repeats what they said."""

    def answer(messages: list[BaseMessage]) -> str | AIMessage:
        said = [str(m.content) for m in messages if isinstance(m, ToolMessage)]
        if said:
            return " & ".join(said)
        return calls(*((t.name, arguments, f"call-{n}") for n, t in enumerate(tools)))

    return create_agent(Scripted(answer=answer), [*tools])


def last(value: Any) -> str:
    return str(value["messages"][-1].content)


def test_a_replayed_tool_call_is_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that takes a request id is sent again with the same, and models don't see it."""
    seen: list[tuple[str, str]] = []

    def pay(order: str, *, request_id: str) -> str:
        """Pay an order."""
        seen.append((order, request_id))
        return f"paid {order}"

    made = effect_tool(pay)
    assert list(made.args) == ["order"]
    runner = Runner(agent(made, order="A1"))
    with killed_at(monkeypatch, "effect.after_call"):
        assert isinstance(runner.run(ASK).error, Killed)
    assert last(runner.done(None)) == "paid A1"
    assert len(seen) == 2
    assert len(set(seen)) == 1


def test_what_is_recorded_is_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool without request ids is called once, or a person is asked."""
    seen: list[str] = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        seen.append(to)
        return f"sent to {to}"

    runner = Runner(agent(effect_tool(mail), to="ann"))
    with killed_at(monkeypatch, "effect.after_result"):
        assert isinstance(runner.run(ASK).error, Killed)
    assert last(runner.done(None)) == "sent to ann"
    other = Runner(agent(effect_tool(mail), to="bob"))
    with killed_at(monkeypatch, "effect.after_call"):
        other.run(ASK)
    # In doubt; "not yet" while the first call may still be under way.
    assert isinstance(other.run(None).error, RetryLater)
    assert seen == ["ann", "bob"]


def test_calls_of_one_message_are_told_apart_by_their_ids() -> None:
    """The same tool, the same arguments, twice in one message: two calls."""
    seen: list[str] = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        seen.append(to)
        return f"mail {len(seen)}"

    made = effect_tool(mail)
    runner = Runner(agent(made, made, to="ann"))
    assert sorted(last(runner.done(ASK)).split(" & ")) == ["mail 1", "mail 2"]
    assert len({request_id for request_id, *_ in runner.db.rows()}) == 2


def test_what_is_injected_is_no_argument_of_the_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """State, runtime and the call's id reach the function, and are not compared at a replay."""
    seen: list[Any] = []

    @tool
    def look(
        to: str,
        state: Annotated[Any, InjectedState],
        runtime: ToolRuntime,
        call: Annotated[str, InjectedToolCallId],
    ) -> str:
        """Look around."""
        seen.append((to, len(state["messages"]), runtime.tool_call_id, call))
        return "seen"

    runner = Runner(agent(effect_tool(look, on_doubt="resend"), to="ann"))
    with killed_at(monkeypatch, "effect.after_call"):
        runner.run(ASK)
    assert last(runner.done(None)) == "seen"
    assert seen == [("ann", 2, "call-0", "call-0")] * 2


@pytest.mark.parametrize("handled", [True, False])
def test_a_tools_own_refusal_is_recorded(handled: bool) -> None:
    """Told to the model where the tool handles errors, else the turn's failure; called once."""
    seen: list[str] = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        seen.append(to)
        raise ToolException(f"{to} has left")

    mail.handle_tool_error = handled
    runner = Runner(agent(effect_tool(mail), to="ann"))
    ran = runner.run(ASK)
    if handled:
        assert last(ran.value) == "ann has left"
    else:
        assert isinstance(ran.error, EffectFailed)
        assert isinstance(runner.run(None).error, EffectFailed)
    assert seen == ["ann"]
    assert [state for _, _, state, _ in runner.db.rows()] == ["failed"]


def test_an_effect_and_an_async_tool_become_tools() -> None:
    """An effect keeps its options; an async function is awaited."""
    seen: list[str] = []

    @effect("payments.pay", on_doubt="resend")
    def pay(order: str, *, request_id: str) -> str:
        """Pay an order."""
        seen.append(request_id)
        return f"paid {order}"

    @tool
    async def mail(order: str) -> str:
        """Send a mail."""
        await asyncio.sleep(0)
        return f"mailed {order}"

    made = [effect_tool(pay), effect_tool(mail, name="notify.mail")]
    value = AsyncRunner(agent(*made, order="A1")).done(ASK)
    assert sorted(last(value).split(" & ")) == ["mailed A1", "paid A1"]
    assert len(seen) == 1
    assert [*reach.named((Effect, AsyncEffect), made)] == ["notify.mail", "payments.pay"]


def test_a_tool_that_is_not_made_of_a_function_is_refused() -> None:
    """Its author has to say where the outside is called."""

    class Custom(BaseTool):
        name: str = "custom"
        description: str = "custom"

        def _run(self) -> str:
            return ""

    with pytest.raises(TypeError, match="custom is of type Custom"):
        effect_tool(Custom())
