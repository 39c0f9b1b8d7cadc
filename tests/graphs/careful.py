"""A refund at an outside that honours no request ids and takes its time; see `paying`."""

from decimal import Decimal

from graphs import shop
from graphs.effects import effect
from tests.graphs.paying import paying


@effect("careful.refund", on_doubt="park", timeout=shop.TIMEOUT)
def refund(order_id: str, amount: Decimal, *, request_id: str) -> shop.Receipt:
    return shop.post_refund(order_id, amount, request_id=request_id)


graph = paying(refund)
