"""Graphs made by context managers. What happens is told in the file that `OPENED` names."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    open: bool


def tell(what: str) -> None:
    with Path(os.environ["OPENED"]).open("a") as log:
        log.write(f"{what}\n")


def _of(node: Any) -> StateGraph[State]:
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[StateGraph[State]]:
    """As MCP's clients do: a task group, which only its own task may leave."""
    loop = asyncio.get_running_loop()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        tell("opened")

        async def node(state: State) -> dict[str, Any]:
            return {"open": loop is asyncio.get_running_loop() and not loop.is_closed()}

        yield _of(node)
        tasks.cancel_scope.cancel()
    tell("closed")


@contextlib.contextmanager
def of_turn(config: dict[str, Any]) -> Iterator[StateGraph[State]]:
    """Made for each turn, and left at its end."""
    name = config["configurable"].get("fleet_key", "looked at")
    tell(f"opened {name}")
    still = [True]

    def node(state: State) -> dict[str, Any]:
        return {"open": still[0]}

    try:
        yield _of(node)
    finally:
        still.clear()
        tell(f"closed {name}")


@contextlib.asynccontextmanager
async def never_left() -> AsyncIterator[StateGraph[State]]:
    try:
        yield _of(lambda state: {"open": True})
    finally:
        tell("trouble")
        raise RuntimeError("can't be closed")


@contextlib.asynccontextmanager
async def never_opened() -> AsyncIterator[StateGraph[State]]:
    raise RuntimeError("nobody there")
    yield
