"""Values in hashes, in the ledger, on pages."""

import json
import math
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from graphs.results import MAX_BYTES, Codec, Unstorable
from graphs.values import args_hash, clean, plain

ANY_TEXT = st.text(st.characters())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda s: st.lists(s) | st.dictionaries(ANY_TEXT, s),
    max_leaves=20,
)


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    x: float


class Model(BaseModel):
    name: str
    points: list[Point] = []


class Colour(Enum):
    RED = "red"


Pair = namedtuple("Pair", "a b")


@given(JSON)
def test_what_is_clean_can_be_stored_and_shown_anywhere(value: Any) -> None:
    """No NUL, no lone surrogate, no NaN, at any depth; cleaning twice changes nothing."""
    cleaned = clean(value)
    text = json.dumps(cleaned, ensure_ascii=False, allow_nan=False)
    text.encode()
    assert "\\u0000" not in json.dumps(cleaned)
    assert clean(cleaned) is cleaned


def test_cleaning_goes_into_objects_and_leaves_the_caller_s_alone() -> None:
    """Frozen, slotted and named ones too; the clean come back as they are."""
    dirty = Model(name="a\x00", points=[Point("\ud800", math.inf)])
    cleaned = clean({"m": dirty, "p": Pair("\x00", 1), "s": {"\x00"}})
    assert cleaned["m"] == Model.model_construct(name="a\ufffd", points=[Point("?", None)])
    assert cleaned["p"] == Pair("\ufffd", 1)
    assert cleaned["s"] == {"\ufffd"}
    assert dirty.name == "a\x00"
    fine = Model(name="a", points=[Point("b", 1.0)])
    assert clean(fine) is fine


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.0"), "1.0"),
        (Decimal(1), 1),
        (1, 1.0),
        (1, True),
        (0, False),
        (None, "None"),
        (b"a", "a"),
        ("", None),
        ([], {}),
        ([1, 2], [2, 1]),
        ({"a": 1}, {"a": 1, "b": None}),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (Decimal("1." + "0" * 30 + "1"), Decimal(1)),
        (["s", "a"], "a"),
        (timedelta(1), timedelta(2)),
    ],
)
def test_different_arguments_have_different_hashes(one: Any, other: Any) -> None:
    """Types are told apart, and structures don't imitate each other."""
    assert args_hash({"x": one}) != args_hash({"x": other})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Decimal("1.50"), Decimal("1.5")),
        (Decimal("0.00"), Decimal(0)),
        (Decimal("1E+3"), Decimal(1000)),
        ((1, 2), [1, 2]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2, 3}, {3, 2, 1}),
        (Point("a", 1.0), {"name": "a", "x": 1.0}),
        (Pair(1, 2), {"a": 1, "b": 2}),
        (Colour.RED, "red"),
        (
            datetime(2026, 1, 1, 12, tzinfo=UTC),
            datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))),
        ),
    ],
)
def test_what_a_checkpoint_may_make_of_arguments_hashes_alike(one: Any, other: Any) -> None:
    """Else a replay on another worker would be refused."""
    assert args_hash({"x": one}) == args_hash({"x": other})


@given(JSON, JSON)
def test_hashes_are_equal_only_for_equal_json(one: Any, other: Any) -> None:
    """As far as cleaning leaves them apart."""
    same = json.dumps(clean(one), sort_keys=True) == json.dumps(clean(other), sort_keys=True)
    if args_hash({"x": clean(one)}) == args_hash({"x": clean(other)}):
        assert same


def test_arguments_that_are_no_data_are_refused() -> None:
    """With the argument's name and place."""
    with pytest.raises(TypeError, match=r"x\[0\].a is of type object"):
        args_hash({"x": [{"a": object()}]})


@given(JSON)
def test_plain_is_json(value: Any) -> None:
    """Of anything."""
    json.dumps(plain(value), allow_nan=False).encode()


def test_plain_keeps_amounts_exact_and_big_numbers_readable() -> None:
    """As text."""
    assert plain({"a": Decimal("1.10"), "b": 2**64, "c": {3, 1}, "d": b"x"}) == {
        "a": "1.10",
        "b": str(2**64),
        "c": [1, 3],
        "d": "x",
    }


def declared() -> dict[str, list[Model] | Colour]: ...  # type: ignore[empty-body]


def broken() -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821


def test_declared_classes_come_back_as_themselves() -> None:
    """Through containers, unions and fields."""
    value = {"m": [Model(name="a", points=[Point("b", 1.5)])], "c": Colour.RED}
    stored, given_back = Codec(declared).encode(value)
    assert given_back == value
    assert Codec(declared).decode(stored) == value


def test_undeclared_classes_come_back_as_plain_data() -> None:
    """No class is imported because stored bytes name it."""
    for function in (broken, lambda: None):
        stored, given_back = Codec(function).encode({"p": Point("a", 1.0), "d": Decimal(1)})
        assert given_back == {"p": {"name": "a", "x": 1.0}, "d": Decimal(1)}
        assert Codec(function).decode(stored) == given_back


@pytest.mark.parametrize("value", [None, b"x", b"", "", 0, False, [], {}, Decimal("1.10"), 1.5])
def test_plain_results_come_back_equal(value: Any) -> None:
    """The empty ones too."""
    _, given_back = Codec(lambda: None).encode(value)
    assert given_back == value
    assert type(given_back) is type(value)


def test_what_cannot_be_stored_says_why() -> None:
    """Too large, no data, too deep, too big a number."""
    nested: list[Any] = []
    nested.append(nested)
    for value in (b"x" * (MAX_BYTES + 1), object(), nested, 2**64):
        with pytest.raises(Unstorable):
            Codec(lambda: None).encode(value)
    with pytest.raises(Unstorable, match="read back"):
        Codec(lambda: None).decode(("msgpack", b"\xc1"))
