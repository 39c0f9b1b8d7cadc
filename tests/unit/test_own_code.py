"""Whose code a line is, and the line that an error came from."""

import json
from pathlib import Path

import pytest

from graphs import effects, refund
from graphs.own_code import is_own, place_of
from workers import turn
from workers.failures import describe


def test_libraries_and_the_fleet_are_not_the_users() -> None:
    """The graphs that are shipped as examples are."""
    assert not any(map(is_own, [str(json.__file__), str(pytest.__file__), "<string>"]))
    assert not is_own(str(effects.__file__)) and not is_own(str(turn.__file__))
    assert is_own(str(refund.__file__)) and is_own(__file__)


def test_an_error_is_told_with_the_users_last_line() -> None:
    """What a library raised was called from there; files of the folder with their way."""

    def node() -> None:
        json.loads("{")

    with pytest.raises(ValueError) as caught:
        node()
    line = node.__code__.co_firstlineno + 1
    place = place_of(caught.value, Path(__file__).resolve().parents[1])
    assert place == f"unit/test_own_code.py:{line}, in node"
    assert describe(caught.value).endswith(f"test_own_code.py:{line}, in node)")


def test_an_error_of_nobodys_line_has_no_place() -> None:
    """Nor has one that was never raised, or for which there is no memory."""
    assert place_of(ValueError(), Path()) == ""
    assert describe(ValueError("x")) == "ValueError: x"
    with pytest.raises(MemoryError) as caught:
        raise MemoryError
    assert describe(caught.value) == "MemoryError"


def test_a_long_error_is_cut_and_keeps_its_place() -> None:
    """2000 characters in all."""
    with pytest.raises(ValueError) as caught:
        raise ValueError("x" * 5000)
    told = describe(caught.value)
    assert len(told) == 2000 and told.endswith("keeps_its_place)")
