"""Nodes that get in the way of control errors, or keep what no serializer knows."""

import asyncio
from typing import Any

import httpx
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from graphs.effects import effect
from graphs.retries import Retry


class State(TypedDict, total=False):
    celsius: float


class Celsius(float):
    """A float, and yet none to strict writers."""


@effect("unruly.pay", on_doubt="resend", retry=Retry(attempts=1))
def pay(*, request_id: str) -> str:
    raise httpx.ConnectError("nobody there")


@effect("unruly.apay", on_doubt="resend", retry=Retry(attempts=1))
async def apay(*, request_id: str) -> str:
    raise httpx.ConnectError("nobody there")


def covering(state: State) -> State:
    try:
        pay()
    except BaseException as exc:
        raise ValueError("covered up") from exc
    return {}


async def grouping(state: State) -> State:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(apay())
    return {}


def swallowing(state: State) -> State:
    try:
        pay()
    except BaseException:
        return {"celsius": 1.0}
    return {}


async def gathering(state: State) -> State:
    await asyncio.gather(apay(), return_exceptions=True)
    return {"celsius": 1.0}


def measuring(state: State) -> State:
    return {"celsius": Celsius(20.5)}


def giving_up(state: State) -> State:
    raise asyncio.CancelledError


class Halt(BaseException):
    """An error of somebody's own that no `except Exception` sees."""


def halting(state: State) -> State:
    raise Halt("enough")


async def ahalting(state: State) -> State:
    raise Halt("enough")


def closing(state: State) -> State:
    raise GeneratorExit


async def aclosing(state: State) -> State:
    raise GeneratorExit


def exiting(state: State) -> State:
    raise SystemExit("enough")


def interrupting(state: State) -> State:
    raise KeyboardInterrupt


def filling(state: State) -> State:
    raise MemoryError


def mistaken(state: State) -> Any:
    return ["no", "state"]


def circling(state: State) -> Any:
    return Command(goto="node")


def _of(node: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


covers, groups, measures, gives_up = map(_of, (covering, grouping, measuring, giving_up))
swallows, gathers = map(_of, (swallowing, gathering))
halts, ahalts, closes, acloses = map(_of, (halting, ahalting, closing, aclosing))
exits, interrupts = map(_of, (exiting, interrupting))
fills, mistakes, circles = map(_of, (filling, mistaken, circling))


def _beside(node: Any) -> Any:
    """The node with another one at its side, in threads of LangGraph's own."""
    builder = StateGraph(State)
    for name, runs in (("node", node), ("other", lambda _: {})):
        builder.add_node(name, runs)
        builder.add_edge(START, name)
    return builder.compile()


halts_beside, closes_beside = map(_beside, (halting, closing))
