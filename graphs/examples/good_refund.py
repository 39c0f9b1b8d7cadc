"""The refund graph of bad_refund.py, without its mistakes: what happens outside is an effect,
what was decided is in the state, and the request id is the fleet's."""

from decimal import Decimal
from typing import Any, NotRequired

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect
from graphs.questions import normalise_decision


class Input(TypedDict):
    user_id: str


class State(Input):
    order_id: NotRequired[str]
    amount: NotRequired[str]
    approved: NotRequired[bool]
    outcome: NotRequired[str]


notify = effect("notify.user", timeout=shop.TIMEOUT)(shop.post_notification)
refund = effect("payments.refund", timeout=shop.TIMEOUT)(shop.post_refund)


def load_order(state: State, config: RunnableConfig) -> dict[str, Any]:
    order = shop.get_order(config["configurable"]["fleet_key"])
    assert order is not None
    return {"order_id": order["order_id"], "amount": order["amount"]}


def ask_person(state: State) -> dict[str, Any]:
    notify(user_id=state["user_id"], text=f"We look at your refund of {state['amount']}.")
    action = {"name": "refund", "args": {"order_id": state["order_id"]}}
    answer = interrupt({"action_requests": [action]})
    return {"approved": normalise_decision(answer).approved}


def pay(state: State) -> dict[str, Any]:
    if not state.get("approved"):
        return {"outcome": "rejected"}
    refund(order_id=state["order_id"], amount=Decimal(state["amount"]))
    return {"outcome": "refunded"}


builder = StateGraph(State, input_schema=Input)
builder.add_node("load_order", load_order)
builder.add_node("ask_person", ask_person)
builder.add_node("pay", pay)
builder.add_edge(START, "load_order")
builder.add_edge("load_order", "ask_person")
builder.add_edge("ask_person", "pay")
builder.add_edge("pay", END)
graph = builder.compile()
