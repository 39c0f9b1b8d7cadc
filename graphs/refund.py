"""The refund graph: load_order → require_approval → process_refund → notify_user.

The key of the thread is the order's id. Above the limit a person decides; at or below it
the refund is approved automatically. The refund is keyed by the order, so that no second
thread and no restart refunds it again.

State is JSON-plain, amounts in it are decimal text. ``outcome`` ends as ``refunded``,
``rejected`` or ``order_not_found``.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, NotRequired

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict

from graphs import shop
from graphs.effects import effect
from graphs.questions import normalise_decision
from infra.settings import get_settings


class RefundInput(TypedDict):
    """What a producer submits. ``user_id``: whom to tell."""

    user_id: str


class RefundState(RefundInput):
    """The thread's state."""

    order_id: NotRequired[str]
    amount: NotRequired[str]
    approval: NotRequired[Literal["automatic", "approved", "rejected"]]
    note: NotRequired[str | None]
    refund_id: NotRequired[str]
    outcome: NotRequired[Literal["refunded", "rejected", "order_not_found"]]


refund = effect("payments.refund", on_doubt="resend", key_ttl="24h", timeout=shop.TIMEOUT)(
    shop.post_refund
)
notify = effect("notify.user", on_doubt="resend", key_ttl="24h", timeout=shop.TIMEOUT)(
    shop.post_notification
)


def refund_once(order_id: str, amount: Decimal) -> shop.Receipt:
    """Refund an order once, whichever thread asks."""
    return refund.keyed(f"order:{order_id}")(order_id=order_id, amount=amount)


def load_order(state: RefundState, config: RunnableConfig) -> dict[str, Any]:
    """Look the order up; above the limit a person is to be asked."""
    order_id: str = config["configurable"]["fleet_key"]
    order = shop.get_order(order_id)
    if order is None:
        return {"order_id": order_id, "outcome": "order_not_found"}
    found: dict[str, Any] = {"order_id": order_id, "amount": order["amount"]}
    if Decimal(order["amount"]) <= get_settings().approval_limit:
        found["approval"] = "automatic"
    return found


def require_approval(state: RefundState) -> dict[str, Any]:
    """Ask a person."""
    order_id, amount = state["order_id"], state["amount"]
    answer = interrupt(
        {
            "action_requests": [
                {
                    "name": "refund",
                    "args": {"order_id": order_id, "amount": amount},
                    "description": f"Refund {amount} for order {order_id}?",
                }
            ],
            "review_configs": [
                {"action_name": "refund", "allowed_decisions": ["approve", "reject"]}
            ],
        }
    )
    decision = normalise_decision(answer)
    if decision.approved:
        return {"approval": "approved", "note": decision.note}
    return {"approval": "rejected", "note": decision.note, "outcome": "rejected"}


def after_load(state: RefundState) -> str:
    """Where an order goes."""
    if state.get("outcome") == "order_not_found":
        return END
    return "process_refund" if state.get("approval") == "automatic" else "require_approval"


def after_approval(state: RefundState) -> str:
    """Where a decision goes."""
    return "process_refund" if state.get("approval") == "approved" else "notify_user"


def message(state: RefundState) -> str:
    """What the user is told."""
    if state.get("outcome") == "refunded":
        return f"Your refund of {state['amount']} for order {state['order_id']} has been made."
    reason = f" Reason: {state['note']}" if state.get("note") else ""
    return f"Your refund for order {state['order_id']} was rejected.{reason}"


def build(
    refund: Callable[..., shop.Receipt] = refund_once, notify: Callable[..., Any] = notify
) -> StateGraph[RefundState, None, RefundInput, RefundState]:
    """The graph, not compiled. Others than our effects may be given, to run it without a
    fleet: ``refund(order_id=, amount=)`` and ``notify(user_id=, text=)``."""

    def process_refund(state: RefundState) -> dict[str, Any]:
        receipt = refund(order_id=state["order_id"], amount=Decimal(state["amount"]))
        return {"refund_id": receipt["refund_id"], "outcome": "refunded"}

    def notify_user(state: RefundState) -> dict[str, Any]:
        notify(user_id=state["user_id"], text=message(state))
        return {}

    builder = StateGraph(RefundState, input_schema=RefundInput)
    builder.add_node("load_order", load_order)
    builder.add_node("require_approval", require_approval)
    builder.add_node("process_refund", process_refund)
    builder.add_node("notify_user", notify_user)
    builder.add_edge(START, "load_order")
    builder.add_conditional_edges(
        "load_order", after_load, ["require_approval", "process_refund", END]
    )
    builder.add_conditional_edges(
        "require_approval", after_approval, ["process_refund", "notify_user"]
    )
    builder.add_edge("process_refund", "notify_user")
    builder.add_edge("notify_user", END)
    return builder


graph = build().compile()
