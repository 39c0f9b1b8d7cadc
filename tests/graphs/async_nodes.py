"""Async nodes with async effects: two calls at once in one node, a question, one call after it.

Input ``{"user_id"}``; the question's payload is ``"go on?"``, the answer any value.
"""

import asyncio
from typing import Any, NotRequired

import httpx
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect
from infra.settings import get_settings


class Input(TypedDict):
    user_id: str


class State(Input):
    answer: NotRequired[Any]


@effect("tell", timeout=shop.TIMEOUT)
async def tell(user_id: str, text: str, *, request_id: str) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=get_settings().shop_url or "") as client:
        response = await client.post(
            "/notifications",
            json={"user_id": user_id, "text": text},
            headers={"Idempotency-Key": request_id},
            timeout=shop.TIMEOUT,
        )
    answer: dict[str, Any] = response.raise_for_status().json()
    return answer


async def announce(state: State) -> dict[str, Any]:
    texts = ("first", "second")
    await asyncio.gather(*(tell.at(t)(user_id=state["user_id"], text=t) for t in texts))
    return {}


async def ask(state: State) -> dict[str, Any]:
    await tell(user_id=state["user_id"], text="before")
    answer = interrupt("go on?")
    await tell(user_id=state["user_id"], text=f"after {answer}")
    return {"answer": answer}


builder = StateGraph(State, input_schema=Input)
builder.add_node("announce", announce)
builder.add_node("ask", ask)
builder.add_edge(START, "announce")
builder.add_edge("announce", "ask")
builder.add_edge("ask", END)
graph = builder.compile()
