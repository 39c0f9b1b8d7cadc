"""Graphs for `fleet chaos` to be tried on: each with one thing that it has to notice."""

import json
import os
import sqlite3
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import httpx
from langchain_core.runnables import RunnableConfig
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs.effects import effect
from infra.settings import get_settings


class State(TypedDict, total=False):
    done: str
    answer: Any


def over_http(state: State) -> State:
    request = urllib.request.Request(
        f"{get_settings().shop_url}/notifications",
        data=json.dumps({"user_id": "u_42", "text": "urllib"}).encode(),
        headers={"Idempotency-Key": "urllib", "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).read()
    return {"done": "over_http"}


async def over_async_http(state: State) -> State:
    async with httpx.AsyncClient(base_url=get_settings().shop_url or "") as client:
        body = {"user_id": "u_42", "text": "httpx"}
        await client.post("/notifications", json=body, headers={"Idempotency-Key": "httpx"})
    return {"done": "over_async_http"}


def in_a_process(state: State) -> State:
    subprocess.run(["true"], check=True)
    return {"done": "in_a_process"}


def in_sqlite(state: State) -> State:
    with sqlite3.connect(Path(os.environ["CHAOTIC_FOLDER"]) / "notes.db", timeout=30) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS notes (text)")
        conn.execute("INSERT INTO notes VALUES ('again')")
    return {"done": "in_sqlite"}


def only_reads(state: State) -> State:
    urllib.request.urlopen(f"{get_settings().shop_url}/orders/A1001").read()
    with sqlite3.connect(":memory:") as conn:
        conn.execute("SELECT 1")
    return {"done": "only_reads"}


def calls_away(state: State) -> State:
    httpx.get("http://chaos.invalid/")
    return {}


def begins(state: State) -> State:
    return {"done": "begins"}


def raises(state: State) -> State:
    raise ValueError("<script>alert(1)</script>")


def how_many(state: State) -> State:
    return {"answer": interrupt("how many?")}


@effect("chaotic.untyped")
def untyped(*, request_id: str):  # type: ignore[no-untyped-def]
    raise AssertionError("the stand-in answers")


@effect("chaotic.park", on_doubt="park", timeout=5)
def park(*, request_id: str) -> dict[str, str]:
    raise AssertionError("the stand-in answers")


def calls_untyped(state: State) -> State:
    return {"answer": untyped()["given"]}


def calls_park(state: State) -> State:
    return {"answer": park()}


def reads_context(state: State, runtime: Runtime[dict[str, str]], config: RunnableConfig) -> State:
    return {"answer": [runtime.context["by"], config["configurable"]["shop"]]}


def _of(*nodes: Any) -> Any:
    builder = StateGraph(State)
    before = START
    for node in nodes:
        builder.add_node(node.__name__, node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    builder.add_edge(before, END)
    return builder.compile()


outgoing = _of(over_http, over_async_http, in_a_process, in_sqlite, only_reads)
away, breaks, counts = _of(calls_away), _of(begins, raises), _of(how_many)
given = _of(reads_context)
parks, untyped_graph = _of(calls_park), _of(calls_untyped)


@task
def halve(amount: int) -> int:
    return amount // 2


@entrypoint()
def halves(given: dict[str, int]) -> dict[str, int]:
    return {"half": halve(given["amount"]).result()}
