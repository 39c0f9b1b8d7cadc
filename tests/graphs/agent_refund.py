"""An agent that refunds an order and tells its user, both in one message, once allowed to.

Input ``{"messages": [order id]}``; the question is a HITLRequest about the refund.
"""

from decimal import Decimal
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import BaseMessage, ToolMessage

from graphs import shop
from graphs.effects import effect
from graphs.tools import effect_tool
from tests.graphs.documented.scripted import Scripted, calls


@effect("agent.refund", timeout=shop.TIMEOUT)
def refund(order_id: str, amount: str, *, request_id: str) -> shop.Receipt:
    """Refund an order."""
    return shop.post_refund(order_id, Decimal(amount), request_id=request_id)


def tell(order_id: str, text: str, *, request_id: str) -> str:
    """Tell the user."""
    shop.post_notification("u_42", f"{text} order {order_id} ", request_id=request_id)
    return "told"


def answer(messages: list[BaseMessage]) -> Any:
    order_id = messages[0].text
    if not any(isinstance(m, ToolMessage) for m in messages):
        return calls(
            ("refund", {"order_id": order_id, "amount": "141.50"}, "call-1"),
            ("tell", {"order_id": order_id, "text": "refunded"}, "call-2"),
            ("tell", {"order_id": order_id, "text": "thank you for"}, "call-3"),
        )
    return "done"


graph = create_agent(
    Scripted(answer=answer),
    [effect_tool(refund), effect_tool(tell, timeout=shop.TIMEOUT)],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"refund": True})],
)
