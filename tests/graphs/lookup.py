"""A refund whose outside is asked by request id what became of it.

Input ``{"amount": "12.50"}``; the key of the thread is the order.
"""

from decimal import Decimal
from typing import Any, NotRequired

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect, lookup

#: Short, so that doubt settles within a test: 5 seconds after this.
TIMEOUT = 1.0


class Input(TypedDict):
    amount: str


class State(Input):
    receipt: NotRequired[Any]


@effect("lookup.refund", on_doubt=lookup(shop.get_refund), timeout=TIMEOUT)
def refund(order_id: str, amount: Decimal, *, request_id: str) -> shop.Receipt:
    return shop.post_refund(order_id, amount, request_id=request_id)


def pay(state: State, config: RunnableConfig) -> dict[str, Any]:
    order_id = config["configurable"]["fleet_key"]
    return {"receipt": refund(order_id=order_id, amount=Decimal(state["amount"]))}


builder = StateGraph(State, input_schema=Input)
builder.add_node("pay", pay)
builder.add_edge(START, "pay")
builder.add_edge("pay", END)
graph = builder.compile()
