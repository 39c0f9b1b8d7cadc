"""Graphs that talk: models that stream, several at a time, in subgraphs, async; and ones that
fail half-way."""

import asyncio
import operator
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import RetryPolicy, Send, interrupt
from typing_extensions import TypedDict


class Words(BaseChatModel):
    """Says what it was told last, word by word; ``breaks`` after so many words, once per file."""

    breaks: int = 0
    pause: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "words"

    def _words(self, messages: list[BaseMessage]) -> Iterator[str]:
        said = f"You said {messages[-1].text}."
        for n, word in enumerate(said.split()):
            yield word if n == 0 else f" {word}"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        text = "".join(self._words(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for n, word in enumerate(self._words(messages)):
            if self.breaks and n == self.breaks:
                raise ConnectionError("the model is gone")
            time.sleep(self.pause)
            chunk = ChatGenerationChunk(message=AIMessageChunk(word))
            if run_manager is not None:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, run_manager: Any = None, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for word in self._words(messages):
            await asyncio.sleep(0)
            chunk = ChatGenerationChunk(message=AIMessageChunk(word))
            if run_manager is not None:
                await run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk


def _one(node: Any, **options: Any) -> Any:
    builder = StateGraph(MessagesState).add_node("answer", node, **options)
    return builder.add_edge(START, "answer").add_edge("answer", END).compile()


def _answer(state: MessagesState) -> dict[str, Any]:
    get_stream_writer()({"thinking": True})
    return {"messages": [Words().invoke(state["messages"])]}


async def _aanswer(state: MessagesState) -> dict[str, Any]:
    get_stream_writer()({"thinking": True})
    return {"messages": [await Words().ainvoke(state["messages"])]}


def _marked(folder: str) -> bool:
    """Whether this is the first time, over all attempts."""
    try:
        (Path(folder) / "tried").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Failing(MessagesState, total=False):
    folder: str


def _fails_once(state: Failing) -> dict[str, Any]:
    breaks = 2 if _marked(state["folder"]) else 0
    return {"messages": [Words(breaks=breaks).invoke(state["messages"])]}


def _plain(state: MessagesState) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": "as a dict"}]}


def _forgets(state: MessagesState) -> dict[str, Any]:
    return {"messages": [RemoveMessage(id=str(state["messages"][0].id))]}


def _asks(state: MessagesState) -> dict[str, Any]:
    said = interrupt({"kind": "clarify", "message": "When?"})
    return {"messages": [AIMessage(f"At {said}.")]}


def _failing(**options: Any) -> Any:
    builder = StateGraph(Failing).add_node("answer", _fails_once, **options)
    return builder.add_edge(START, "answer").add_edge("answer", END).compile()


def _waits(state: MessagesState) -> dict[str, Any]:
    """Has spoken, and waits until the file TALKING_GATE, which it makes, is gone."""
    said = Words().invoke(state["messages"])
    gate = Path(os.environ["TALKING_GATE"])
    gate.touch()
    deadline = time.monotonic() + 30
    while gate.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return {"messages": [said]}


def _nested() -> Any:
    outer = StateGraph(MessagesState).add_node("desk", _one(_answer))
    return outer.add_edge(START, "desk").add_edge("desk", END).compile()


chat = _one(_answer)
achat = _one(_aanswer)
plainly = _one(_plain)
forgets = _one(_forgets)
waits = _one(_waits)
asks = _one(_asks)
nested = _nested()
fails = _failing()
tries_again = _failing(
    retry_policy=RetryPolicy(max_attempts=2, initial_interval=0.01, jitter=False)
)


class Busy(TypedDict, total=False):
    count: int
    done: Annotated[list[int], operator.add]


def _fan_out(state: Busy) -> list[Send]:
    return [Send("work", {"count": state["count"], "done": [n]}) for n in range(2)]


def _work(state: Busy) -> dict[str, Any]:
    write = get_stream_writer()
    for n in range(state["count"]):
        write({"task": state["done"][0], "n": n})
    return {"done": state["done"]}


busy = (
    StateGraph(Busy)
    .add_node("begin", lambda state: {})
    .add_node("work", _work)
    .add_edge(START, "begin")
    .add_conditional_edges("begin", _fan_out, ["work"])
    .add_edge("work", END)
    .compile()
)


@task
def _double(n: int) -> int:
    get_stream_writer()({"doubling": n})
    return 2 * n


@entrypoint()
def functional(given: dict[str, Any]) -> int:
    """Calls tasks."""
    return sum(_double(n).result() for n in (1, 2))
