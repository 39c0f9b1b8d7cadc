"""New checkpoint ids sort after those that are known, whatever the host's clock says."""

from collections.abc import Iterator

import pytest
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.base.id import uuid6

from workers.checkpoint_clock import lift


@pytest.fixture(autouse=True)
def _own_clock() -> Iterator[None]:
    before = checkpoint_ids._last_v6_timestamp
    yield
    checkpoint_ids._last_v6_timestamp = before


def ahead(seconds: int) -> str:
    """An id of a host whose clock is ahead of this one's."""
    stamp = uuid6().time + seconds * 10_000_000
    high, low = stamp >> 12, stamp & 0xFFF
    return str(checkpoint_ids.UUID(int=high << 80 | low << 64, version=6))


def test_ids_follow_those_of_a_clock_ahead() -> None:
    """A day ahead, and the order of the ids stays that of the writes."""
    known = ahead(86_400)
    assert str(uuid6()) < known
    lift(None, known, str(uuid6()))
    assert known < str(uuid6()) < str(uuid6())


def test_a_clock_is_never_set_back() -> None:
    """An old thread does not move what this process has reached."""
    old, reached = str(uuid6()), ahead(3_600)
    lift(reached)
    lift(old)
    assert str(uuid6()) > reached


def test_a_new_thread_has_no_ids() -> None:
    """Nothing known changes nothing."""
    before = checkpoint_ids._last_v6_timestamp
    lift(None, None)
    assert checkpoint_ids._last_v6_timestamp == before
