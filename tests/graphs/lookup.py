"""A refund whose outside is asked by request id what became of it; see `paying`."""

from decimal import Decimal

from graphs import shop
from graphs.effects import effect, lookup
from tests.graphs.paying import TIMEOUT, paying


def find(request_id: str) -> shop.Receipt | None:
    """What the shop made of a request id; None when it knows nothing of it."""
    response = shop.client().get(f"/refunds/{request_id}")
    if response.status_code == 404:
        return None
    body = response.raise_for_status().json()
    return shop.Receipt(refund_id=body["refund_id"], status=body["status"])


@effect("lookup.refund", on_doubt=lookup(find), timeout=TIMEOUT)
def refund(order_id: str, amount: Decimal, *, request_id: str) -> shop.Receipt:
    return shop.post_refund(order_id, amount, request_id=request_id)


graph = paying(refund)
