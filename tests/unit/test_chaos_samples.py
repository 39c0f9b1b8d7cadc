"""What a stand-in answers for an effect, by the type that its function says it returns."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

from producers.chaos.samples import NoSample, result_of, sample_of


class Colour(Enum):
    RED = "red"


class Receipt(TypedDict):
    refund_id: str
    note: NotRequired[str]


@dataclass
class Box:
    size: int
    lid: bool
    label: str = "none"


class Order(BaseModel):
    order_id: str
    amount: Decimal
    box: Box
    on: date


def giving(kind: Any) -> Any:
    def function(*, request_id: str) -> Any: ...

    function.__annotations__["return"] = kind
    return function


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (str, "e"),
        (None, None),
        (int, 1),
        (bool, True),
        (Decimal, Decimal(1)),
        (list[str], []),
        (dict[str, Any], {}),
        (str | None, "e"),
        (Literal["paid", "open"], "paid"),
        (Colour, Colour.RED),
        (Receipt, {"refund_id": "refund_id"}),
        (Box, Box(1, True)),
        (tuple[int, str], (1, "e")),
        (UUID, UUID("00000000-0000-4000-8000-000000000001")),
    ],
)
def test_a_simple_value_of_the_type(kind: Any, expected: Any) -> None:
    """Fields that need not be given are left out."""
    assert sample_of(giving(kind), "e") == expected


def test_fields_within_fields() -> None:
    """A model's own types are made too, and named after their fields."""
    found = sample_of(giving(Order), "e")
    assert found.order_id == "order_id" and found.box == Box(1, True)


def test_what_says_nothing_has_no_sample() -> None:
    """No annotation, Any, and a class of one's own."""

    def bare(*, request_id: str):  # type: ignore[no-untyped-def]
        ...

    for function in (bare, giving(Any), giving(threaded := type("Threaded", (), {}))):
        with pytest.raises(NoSample):
            sample_of(function, "e")
    assert threaded


def test_a_given_result_becomes_what_the_function_gives() -> None:
    """JSON is put through the annotation; what does not fit is named."""
    assert result_of(giving(Box), {"size": 2, "lid": False}) == Box(2, False)
    with pytest.raises(NoSample, match="size"):
        result_of(giving(Box), {"size": "large", "lid": False})
