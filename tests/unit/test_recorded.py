"""`recorded(model)`: what a replay gets, pays and shows; failures of a model's server."""

import asyncio
import contextvars
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from graphs.control import RetryLater
from graphs.effects import Retry
from graphs.errors import AmbiguousEffect, EffectArgumentsChanged, EffectFailed, EffectOutsideTurn
from graphs.recorded import recorded
from tests.openai_server import OpenAIServer, Say, tool
from tests.unit.memory_turn import AsyncRunner, Killed, Runner, killed_at

QUICK = Retry(attempts=3, max_wait=0.05)


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(params=[Runner, AsyncRunner])
def runner(request: pytest.FixtureRequest) -> Iterator[type[Runner]]:
    """Async runs on one loop, as in a slot: a client's connections belong to it."""
    with asyncio.Runner() as loop:

        class OneLoop(AsyncRunner):
            def _run(self, work: Any) -> Any:
                return loop.run(work, context=contextvars.copy_context())

            def _invoke(self, step: Any, config: Any) -> Any:
                return self._run(self.graph.ainvoke(step, config, durability=self.durability))

        yield Runner if request.param is Runner else OneLoop


def model(server: OpenAIServer, **given: Any) -> Any:
    chat = ChatOpenAI(model="test", base_url=server.url, api_key="k", max_retries=0, **given)
    return recorded(chat, retry=QUICK)


def asking(chat: Any, runner: type[Runner], after: Any = None) -> Runner:
    """A graph of one node that asks the model; ``after`` runs behind the call, in the node."""

    def node(state: State) -> Any:
        said = chat.invoke(state["messages"])
        return {"messages": [said, *(after() if after else [])]}

    async def anode(state: State) -> Any:
        said = await chat.ainvoke(state["messages"])
        return {"messages": [said, *(after() if after else [])]}

    builder = StateGraph(State)
    builder.add_node("node", anode if issubclass(runner, AsyncRunner) else node)
    builder.add_edge(START, "node")
    return runner(builder)


START_WITH: Any = {"messages": [HumanMessage("hi", id="h1")]}


def test_a_node_that_asks_again_does_not_pay_again(
    server: OpenAIServer, runner: type[Runner]
) -> None:
    """Its question's answer comes, the node runs anew, and the model is what it was."""
    server.script = [tool("find", n=1)]

    def after() -> list[AnyMessage]:
        return [HumanMessage(str(interrupt("sure?")))]

    run = asking(model(server), runner, after)
    assert "__interrupt__" in run.done(START_WITH)
    told = run.done(Command(resume="yes"))["messages"]
    assert [m.content for m in told] == ["hi", "", "yes"]
    assert told[1].tool_calls == [
        {"name": "find", "args": {"n": 1}, "id": "call-1-0", "type": "tool_call"}
    ]
    assert told[1].usage_metadata["total_tokens"] == 2
    assert len(server.asked) == 1


def test_a_crash_behind_the_call_leaves_the_answer(
    server: OpenAIServer, runner: type[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the answer was recorded and committed: the same answer, paid once."""
    server.script = [Say("one"), Say("two")]
    dying = [True]

    def after() -> list[AnyMessage]:
        if dying:
            dying.clear()
            raise RuntimeError("after the call")
        return []

    run = asking(model(server), runner, after)
    assert isinstance(run.run(START_WITH).error, RuntimeError)
    assert run.done(None)["messages"][-1].content == "one"
    assert len(server.asked) == 1


def test_a_crash_in_the_call_asks_again_under_the_same_id(
    server: OpenAIServer, runner: type[Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no answer, so there is nothing to keep: one row in the ledger, two attempts."""
    server.script = [Say("one"), Say("two")]
    run = asking(model(server), runner)
    with killed_at(monkeypatch, "effect.after_call"):
        assert isinstance(run.run(START_WITH).error, Killed)
    assert run.done(None)["messages"][-1].content == "two"
    [(_, name, state, attempts)] = run.db.rows()
    assert (name, state, attempts) == ("model.call", "done", 2)


def streamed(run: Runner, step: Any) -> tuple[list[str], Any]:
    """The texts that the run's message stream had, and what the run came to."""
    texts: list[str] = []

    def invoke(step: Any, config: Any) -> Any:
        for mode, part in run.graph.stream(step, config, stream_mode=["messages", "values"]):
            if mode == "messages" and part[0].type != "human" and part[0].content:
                texts.append(part[0].content)
        return None

    async def ainvoke(step: Any, config: Any) -> Any:
        async for mode, part in run.graph.astream(step, config, stream_mode=["messages", "values"]):
            if mode == "messages" and part[0].type != "human" and part[0].content:
                texts.append(part[0].content)

    if isinstance(run, AsyncRunner):
        run._invoke = lambda s, c: run._run(ainvoke(s, c))  # type: ignore
    else:
        run._invoke = invoke  # type: ignore[method-assign]
    return texts, run.run(step)


def test_tokens_are_streamed_and_a_replay_shows_the_whole(
    server: OpenAIServer, runner: type[Runner]
) -> None:
    """Word by word the first time; at once the second, without a call."""
    server.script = [Say("one two three")]
    asked: list[Any] = []

    def after() -> list[AnyMessage]:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("after the call")
        return []

    run = asking(model(server), runner, after)
    texts, _ = streamed(run, START_WITH)
    assert texts == ["one ", "two ", "three "]
    assert server.asked[0].body["stream"] is True
    texts, ran = streamed(run, None)
    assert (texts, ran.error) == (["one two three "], None)
    assert len(server.asked) == 1


def test_a_rate_limit_is_waited_for(server: OpenAIServer, runner: type[Runner]) -> None:
    """429 with Retry-After: asked again within the turn, and once more in the ledger."""
    server.script = [Say(status=429, retry_after=0.01), Say("now")]
    assert asking(model(server), runner).done(START_WITH)["messages"][-1].content == "now"
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_come_back_to(
    server: OpenAIServer, runner: type[Runner], status: int
) -> None:
    """After the last attempt the slot is given back."""
    server.script = lambda _: Say(status=status, retry_after=0.01)
    ran = asking(model(server), runner).run(START_WITH)
    assert isinstance(ran.error, RetryLater) and ran.error.counted
    assert len(server.asked) == QUICK.attempts


def test_a_refusal_is_for_good(server: OpenAIServer, runner: type[Runner]) -> None:
    """400: recorded, and raised again without a call."""
    server.script = [Say(status=400)]
    run = asking(model(server), runner)
    for _ in range(2):
        failed = run.run(START_WITH if not server.asked else None).error
        assert isinstance(failed, EffectFailed) and failed.status == 400
    assert len(server.asked) == 1


@pytest.mark.parametrize("broken", [{"cut": 3}, {"stop": 3}])
def test_half_an_answer_ends_the_turn_and_the_next_has_the_whole(
    server: OpenAIServer, runner: type[Runner], broken: dict[str, int]
) -> None:
    """Its tokens were seen, so nothing goes out beside them: the turn comes back."""
    server.script = [Say("one two three", **broken), Say("four")]  # type: ignore[arg-type]
    run = asking(model(server), runner)
    texts, ran = streamed(run, START_WITH)
    assert texts == ["one ", "two "]
    assert isinstance(ran.error, RetryLater) and "broke off" in str(ran.error)
    assert len(server.asked) == 1
    texts, ran = streamed(run, None)
    assert (texts, ran.error) == (["four "], None)


def test_tools_and_structures_are_recorded_too(server: OpenAIServer) -> None:
    """bind_tools, with_structured_output, and a model that had its tools before."""

    class Find(BaseModel):
        """Find."""

        n: int

    chat = model(server)
    bound = recorded(chat.model.bind_tools([Find]), retry=QUICK)
    server.script = [tool("Find", n=1), tool("Find", n=2), tool("Find", n=3)]

    def node(state: State) -> Any:
        said = chat.bind_tools([Find]).invoke(state["messages"])
        again = bound.invoke(state["messages"])
        third = chat.with_structured_output(Find).invoke(state["messages"])
        assert third == Find(n=3)
        interrupt([said.tool_calls[0]["args"], again.tool_calls[0]["args"]])
        return {}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    run = Runner(builder)
    assert run.done(START_WITH)["__interrupt__"][0].value == [{"n": 1}, {"n": 2}]
    run.done(Command(resume=1))
    assert len(server.asked) == 3
    assert all(asked.body["tools"][0]["function"]["name"] == "Find" for asked in server.asked)


def test_calls_side_by_side_name_themselves(server: OpenAIServer) -> None:
    """Refused before anything is sent, or told apart by their names."""
    server.script = lambda body: Say(body["messages"][0]["content"])

    async def node(state: State) -> Any:
        said = await asyncio.gather(
            *(at(f"n{n}").ainvoke([HumanMessage(f"no {n}")]) for n in range(2))
        )
        return {"messages": said}

    chat = model(server)
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    at: Any = lambda _: chat  # noqa: E731
    assert isinstance(AsyncRunner(builder).run(START_WITH).error, AmbiguousEffect)
    assert server.asked == []
    at = chat.at
    found = AsyncRunner(builder).done(START_WITH)["messages"]
    assert [m.content for m in found] == ["hi", "no 0", "no 1"]


def test_instructions_may_change_and_the_conversation_may_not(server: OpenAIServer) -> None:
    """A deploy with another prompt finds what was recorded; other words are an error."""
    server.script = [Say("one")]
    chat, said = model(server), ["be kind", "hi"]

    def node(state: State) -> Any:
        found = chat.invoke([SystemMessage(said[0]), HumanMessage(said[1])])
        interrupt(found.content)
        return {}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    run = Runner(builder)
    assert run.done(START_WITH)["__interrupt__"][0].value == "one"
    said[0] = "be brief"
    run.done(Command(resume=1))
    run = Runner(builder)
    server.script = [Say("one")]
    run.done(START_WITH)
    said[1] = "bye"
    assert isinstance(run.run(Command(resume=1)).error, EffectArgumentsChanged)


def test_outside_of_a_turn_nothing_is_sent(server: OpenAIServer) -> None:
    """As with every effect."""
    with pytest.raises(EffectOutsideTurn):
        model(server).invoke("hi")
    assert server.asked == []


def test_what_is_no_chat_model_is_refused() -> None:
    """By name."""
    with pytest.raises(TypeError, match="list is none"):
        recorded([])  # type: ignore[arg-type]


def test_agents_take_it(server: OpenAIServer, runner: type[Runner]) -> None:
    """`create_agent` binds its tools to it."""
    from langchain.agents import create_agent

    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    server.script = [tool("add", a=1, b=2), Say("three")]
    run = runner(create_agent(model(server), [add]).builder)
    found = run.done({"messages": [{"role": "user", "content": "1 + 2?"}]})["messages"]
    assert [m.content for m in found] == ["1 + 2?", "", "3", "three"]
    assert isinstance(found[-1], AIMessage)
    assert [row[1:3] for row in run.db.rows()] == [("model.call", "done")] * 2
