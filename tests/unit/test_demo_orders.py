"""The demo's audit: the shop's books against what was decided."""

from decimal import Decimal
from typing import Any

from producers.cli.demo.orders import Decision, Order, make_orders, problems, rows

ORDERS = [Order("A1001", Decimal("410.01"), False), Order("A1002", Decimal("1402.02"), True)]
DECISIONS: dict[str, Decision] = {"A1001": "automatic", "A1002": "rejected"}
STATUSES = {"A1001": ("done", 2), "A1002": ("done", 0)}
PAID = {"order_id": "A1001", "amount": "410.01"}


def books(*refunds: dict[str, str]) -> dict[str, Any]:
    ids = [refund["order_id"] for refund in refunds]
    calls = {"refunds": {"by_order": {order_id: 2 for order_id in ids}}}
    return {
        "orders": {order_id: ids.count(order_id) for order_id in ids},
        "refunds": list(refunds),
        "calls": calls,
    }


def audit(*refunds: dict[str, str], **statuses: tuple[str, int]) -> list[str]:
    found = books(*refunds)
    return problems(ORDERS, rows(ORDERS, DECISIONS, STATUSES | statuses, found), found["refunds"])


def test_half_of_the_orders_are_above_the_limit() -> None:
    """The first is not, so that one order alone needs nobody."""
    limit = Decimal(1000)
    orders = make_orders(100, limit)
    assert [order.amount > limit for order in orders] == [False, True] * 50
    assert all(order.asks == (order.amount > limit) for order in orders)
    assert len({order.order_id for order in orders}) == 100


def test_a_row_puts_ledger_and_books_side_by_side() -> None:
    """Attempts are the fleet's count, calls and refunds the shop's."""
    row = rows(ORDERS, DECISIONS, STATUSES, books(PAID))[0]
    assert (row.attempts, row.calls, row.refunds) == (2, 2, 1)


def test_books_that_fit_have_no_problems() -> None:
    """One refund for the automatic order, none for the rejected one."""
    assert audit(PAID) == []


def test_a_second_refund_is_found() -> None:
    """Each order once."""
    assert audit(PAID, PAID) == ["Order A1001 was refunded 2 times, not 1."]


def test_a_missing_refund_is_found() -> None:
    """Accepted is kept."""
    assert audit() == ["Order A1001 was refunded 0 times, not 1."]


def test_a_refund_that_was_rejected_is_found() -> None:
    """No means no."""
    rejected = {"order_id": "A1002", "amount": "1402.02"}
    assert audit(PAID, rejected) == ["Order A1002 was refunded 1 times, not 0."]


def test_another_amount_is_found() -> None:
    """To the cent."""
    assert audit(PAID | {"amount": "410.02"}) == ["Order A1001 was refunded 410.02, not 410.01."]


def test_a_refund_that_nobody_asked_for_is_found() -> None:
    """And no other was."""
    stranger = {"order_id": "B7", "amount": "1.00"}
    assert audit(PAID, stranger) == ["Order B7 was refunded, and nobody had asked for it."]


def test_a_thread_that_has_not_ended_is_found() -> None:
    """The books alone do not make an end."""
    assert audit(PAID, A1002=("waiting", 0)) == ["Order A1002 is waiting, not done."]
