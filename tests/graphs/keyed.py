"""A refund with a business identity: whichever thread asks, the order is refunded once.

Input ``{"order_id", "amount": "12.50"}``; the key of the thread is free.
"""

from decimal import Decimal
from typing import Any, NotRequired

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect


class Input(TypedDict):
    order_id: str
    amount: str


class State(Input):
    receipt: NotRequired[Any]


refund = effect("keyed.refund", timeout=shop.TIMEOUT)(shop.post_refund)


def pay(state: State) -> dict[str, Any]:
    once = refund.keyed(f"order:{state['order_id']}")
    return {"receipt": once(order_id=state["order_id"], amount=Decimal(state["amount"]))}


builder = StateGraph(State, input_schema=Input)
builder.add_node("pay", pay)
builder.add_edge(START, "pay")
builder.add_edge("pay", END)
graph = builder.compile()
