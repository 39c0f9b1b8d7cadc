"""A refund graph with mistakes, all of which work until a process dies.

    FLEET_GRAPHS_FILE=graphs/examples/langgraph.json \\
        ./fleet chaos bad_refund --inputs graphs/examples/orders.jsonl

finds them. The same graph without them is beside it, in good_refund.py.
"""

import uuid
from typing import Any, NotRequired

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.questions import normalise_decision


class Input(TypedDict):
    user_id: str


class State(Input):
    order_id: NotRequired[str]
    amount: NotRequired[str]
    outcome: NotRequired[str]


#: Mistake: the memory of one process. The next one knows nothing of it.
_approved: dict[str, bool] = {}


def load_order(state: State, config: RunnableConfig) -> dict[str, Any]:
    """Fine: it only asks, and may do so again."""
    order = shop.get_order(config["configurable"]["fleet_key"])
    assert order is not None
    return {"order_id": order["order_id"], "amount": order["amount"]}


def ask_person(state: State) -> dict[str, Any]:
    """Mistake: what stands before the question happens again with its answer."""
    text = f"We look at your refund of {state['amount']}."
    shop.client().post(
        "/notifications",
        json={"user_id": state["user_id"], "text": text},
        headers={"Idempotency-Key": str(uuid.uuid4())},
    )
    _approved[state["order_id"]] = approved(state)
    return {}


def pay(state: State) -> dict[str, Any]:
    """Mistake: an id made at each attempt is no request id. The shop pays again."""
    order_id = state["order_id"]
    if order_id not in _approved:
        _approved[order_id] = approved(state)
    if not _approved[order_id]:
        return {"outcome": "rejected"}
    shop.client().post(
        "/refunds",
        json={"order_id": order_id, "amount": state["amount"]},
        headers={"Idempotency-Key": str(uuid.uuid4())},
    ).raise_for_status()
    return {"outcome": "refunded"}


def approved(state: State) -> bool:
    """Ask a person."""
    action = {"name": "refund", "args": {"order_id": state["order_id"]}}
    return normalise_decision(interrupt({"action_requests": [action]})).approved


builder = StateGraph(State, input_schema=Input)
builder.add_node("load_order", load_order)
builder.add_node("ask_person", ask_person)
builder.add_node("pay", pay)
builder.add_edge(START, "load_order")
builder.add_edge("load_order", "ask_person")
builder.add_edge("ask_person", "pay")
builder.add_edge("pay", END)
graph = builder.compile()
