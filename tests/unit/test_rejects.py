"""What counts as a wake-up among the things that may lie in a queue."""

import base64
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from producers.wakeup import message
from workers.rejects import NotAWakeUp, read

ENVELOPE: dict[str, Any] = json.loads(message("fleet", "refund:A1001"))
BODY: Any = json.loads(base64.b64decode(ENVELOPE["body"]))

#: Stand in for each part of the message in turn.
ODD: list[Any] = [
    *(None, True, 0, -1, 1.5, float("nan"), 2**70),
    *("", "x", "\ud800", "\0", "%%%", "refund:\0", "refund:\ud800"),
    *([], [1], [None], [[]], ["x", "y", "z"], {}, {"a": 1}),
    *({"__type__": "uuid", "__value__": 3}, {"__type__": "bytes", "__value__": "eA=="}),
    {"__type__": "datetime", "__value__": "2026-01-01T00:00:00"},
]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the value and each part of it are."""
    yield at
    inner = value.items() if isinstance(value, dict) else ()
    for key, part in enumerate(value) if isinstance(value, list) else inner:
        yield from places(part, (*at, key))


def with_part(value: Any, at: tuple[Any, ...], part: Any) -> Any:
    if not at:
        return part
    changed = copy.copy(value)
    changed[at[0]] = with_part(value[at[0]], at[1:], part)
    return changed


def packed(body: Any) -> dict[str, Any]:
    return ENVELOPE | {"body": base64.b64encode(json.dumps(body).encode()).decode()}


@pytest.mark.parametrize("at", places(ENVELOPE), ids=str)
def test_a_message_with_an_odd_part_names_the_thread_or_is_refused(at: tuple[Any, ...]) -> None:
    """One or the other whatever stands there: no other error, and no other thread."""
    for odd in ODD:
        try:
            assert read(json.dumps(with_part(ENVELOPE, at, odd)).encode()) == "refund:A1001"
        except NotAWakeUp as refused:
            assert str(refused).isprintable()


@pytest.mark.parametrize("at", places(BODY), ids=str)
def test_a_body_with_an_odd_part_names_the_thread_or_is_refused(at: tuple[Any, ...]) -> None:
    """As above, but for the argument itself, which is never anything but text."""
    for odd in ODD:
        try:
            assert read(json.dumps(packed(with_part(BODY, at, odd))).encode()) == "refund:A1001"
        except NotAWakeUp as refused:
            assert str(refused).isprintable()


@pytest.mark.parametrize("at", [at for at in places(ENVELOPE) if at], ids=str)
def test_a_message_without_a_part_names_the_thread_or_is_refused(at: tuple[Any, ...]) -> None:
    """What is missed is what kombu or Celery can't do without."""
    lacking = copy.deepcopy(ENVELOPE)
    inner = lacking
    for key in at[:-1]:
        inner = inner[key]
    if isinstance(inner, list):
        return
    del inner[at[-1]]
    try:
        assert read(json.dumps(lacking).encode()) == "refund:A1001"
    except NotAWakeUp as refused:
        assert "Field required" in str(refused)


def test_what_celery_makes_of_the_task_is_a_wake_up() -> None:
    """A stock client's message, with headers of its own, names the thread."""
    headers = ENVELOPE["headers"] | {"stamped_headers": None, "replaced_task_nesting": 0}
    body = [["refund:A1001"], {}, BODY[2]]
    assert read(json.dumps(packed(body) | {"headers": headers}).encode()) == "refund:A1001"
