"""A graph of one node that refunds by an effect.

Input ``{"amount": "12.50"}``; the key of the thread is the order.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NotRequired

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

#: Seconds of the effects; short, so that doubt settles within a test: 5 seconds after this.
TIMEOUT = 1.0


class Input(TypedDict):
    amount: str


class State(Input):
    receipt: NotRequired[Any]


def paying(refund: Callable[..., Any]) -> Any:
    """The graph; refund(order_id=, amount=) gives the receipt."""

    def pay(state: State, config: RunnableConfig) -> dict[str, Any]:
        order_id = config["configurable"]["fleet_key"]
        return {"receipt": refund(order_id=order_id, amount=Decimal(state["amount"]))}

    builder = StateGraph(State, input_schema=Input)
    builder.add_node("pay", pay)
    builder.add_edge(START, "pay")
    builder.add_edge("pay", END)
    return builder.compile()
