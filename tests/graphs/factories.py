"""Graphs that an async function or a context manager makes: two steps, a question, a last step."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from operator import add
from typing import Annotated, Any

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    log: Annotated[list[str], add]


class Line:
    """What a factory opens: it works on the event loop that it was opened on, while open."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._lock = asyncio.Lock()
        self.open = True

    async def say(self, text: str) -> list[str]:
        async with self._lock:
            assert self.open
            assert asyncio.get_running_loop() is self._loop
            return [f"{self._name}: {text}"]


def _flow(*nodes: Any) -> StateGraph[State]:
    builder = StateGraph(State)
    before = START
    for node in nodes:
        builder.add_node(node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder


def _on(line: Line) -> StateGraph[State]:
    async def first(state: State) -> dict[str, Any]:
        return {"log": await line.say("first")}

    async def second(state: State) -> dict[str, Any]:
        return {"log": await line.say("second")}

    async def ask(state: State) -> dict[str, Any]:
        return {"log": await line.say(interrupt("go on?"))}

    async def last(state: State) -> dict[str, Any]:
        return {"log": await line.say(f"{len(state['log'])} before")}

    return _flow(first, second, ask, last)


async def awaited() -> StateGraph[State]:
    return _on(Line("awaited"))


async def awaited_for(config: dict[str, Any]) -> StateGraph[State]:
    return _on(Line(config["configurable"].get("line", "none")))


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[StateGraph[State]]:
    line = Line("opened")
    yield _on(line)
    line.open = False


@contextlib.asynccontextmanager
async def opened_for(config: dict[str, Any]) -> AsyncIterator[StateGraph[State]]:
    line = Line(config["configurable"].get("line", "none"))
    yield _on(line)
    line.open = False


@contextlib.contextmanager
def entered() -> Iterator[StateGraph[State]]:
    held = ["entered"]

    def first(state: State) -> dict[str, Any]:
        return {"log": [f"{held[0]}: first"]}

    def second(state: State) -> dict[str, Any]:
        return {"log": [f"{held[0]}: second"]}

    def ask(state: State) -> dict[str, Any]:
        return {"log": [f"{held[0]}: {interrupt('go on?')}"]}

    def last(state: State) -> dict[str, Any]:
        return {"log": [f"{held[0]}: {len(state['log'])} before"]}

    try:
        yield _flow(first, second, ask, last)
    finally:
        held.clear()
