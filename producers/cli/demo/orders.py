"""The orders of a demo, and what the shop's own books must say of them in the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

Decision = Literal["automatic", "approved", "rejected"]

_FIRST = 1001


@dataclass(frozen=True)
class Order:
    """What is to be refunded; `asks`: the amount is above the approval limit."""

    order_id: str
    amount: Decimal
    asks: bool

    @property
    def thread_id(self) -> str:
        return f"refund:{self.order_id}"


@dataclass(frozen=True)
class Row:
    """What became of an order. `attempts`: calls that the fleet began, by its ledger;
    `calls` and `refunds`: what reached the shop and what it did, by its books."""

    order: str
    amount: str
    decision: str
    status: str
    attempts: int
    calls: int
    refunds: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Ended:
    """How the demo ended. `caught`: orders that were paid and not recorded at the kill."""

    rows: list[Row]
    problems: list[str]
    takeover_s: float
    worker: str
    pid: int
    caught: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def refunded(self) -> int:
        return sum(row.refunds > 0 for row in self.rows)

    def as_dict(self) -> dict[str, Any]:
        """What --json prints."""
        return {
            "orders": [row.as_dict() for row in self.rows],
            "takeover_s": round(self.takeover_s, 4),
            "killed": {"worker": self.worker, "pid": self.pid, "orders": self.caught},
            "ok": self.ok,
            "problems": self.problems,
        }


def make_orders(count: int, limit: Decimal) -> list[Order]:
    """Every second one above the limit, from the second on."""
    orders = []
    for number in range(_FIRST, _FIRST + count):
        asks = number % 2 == 0
        cents = Decimal(number % 100) / 100
        amount = limit + 200 + number % 800 if asks else limit * (20 + number % 70) / 100
        orders.append(Order(f"A{number}", (amount + cents).quantize(Decimal("0.01")), asks))
    return orders


def rows(
    orders: Iterable[Order],
    decisions: Mapping[str, Decision],
    statuses: Mapping[str, tuple[str, int]],
    books: Mapping[str, Any],
) -> list[Row]:
    """One row per order; `statuses`: its thread's status and the refund's attempts."""
    calls = books["calls"]["refunds"]["by_order"]
    return [
        Row(
            order=order.order_id,
            amount=str(order.amount),
            decision=decisions.get(order.order_id, "undecided"),
            status=statuses[order.order_id][0],
            attempts=statuses[order.order_id][1],
            calls=int(calls.get(order.order_id, 0)),
            refunds=int(books["orders"].get(order.order_id, 0)),
        )
        for order in orders
    ]


def problems(
    orders: Sequence[Order], found: Iterable[Row], refunds: Iterable[Mapping[str, Any]]
) -> list[str]:
    """What is wrong, a sentence each; `refunds` are all those in the shop's books."""
    wrong = []
    amounts = {order.order_id: order.amount for order in orders}
    for row in found:
        wanted = 1 if row.decision in ("automatic", "approved") else 0
        if row.refunds != wanted:
            wrong.append(f"Order {row.order} was refunded {row.refunds} times, not {wanted}.")
        if row.status != "done":
            wrong.append(f"Order {row.order} is {row.status}, not done.")
    for refund in refunds:
        order_id, amount = refund["order_id"], Decimal(refund["amount"])
        if order_id not in amounts:
            wrong.append(f"Order {order_id} was refunded, and nobody had asked for it.")
        elif amount != amounts[order_id]:
            wrong.append(f"Order {order_id} was refunded {amount}, not {amounts[order_id]}.")
    return wrong
