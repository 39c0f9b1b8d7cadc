"""Ids of events, and one order of what the stream and Postgres have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers.live import Event, EventId, InvalidEventId
from producers.live.events import batch
from producers.live.merge import merge

START = EventId(4, 9)


def event(epoch: int, n: int, after: tuple[int, int] | None = None, **more: bool) -> Event:
    return Event(EventId(epoch, n), "custom", "", {}, EventId(*after) if after else None, **more)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_an_id_is_read_as_it_is_written(epoch: int, n: int) -> None:
    """And compared as a pair of integers."""
    assert EventId.parse(f"{epoch}-{n}") == (epoch, n) == EventId.parse(str(EventId(epoch, n)))
    assert EventId(9, 0) < EventId(10, 0) and EventId(1, 9) < EventId(1, 10)


LONG = [f"{2**63}-0", f"0-{2**31}", "9" * 5000 + "-1"]
FORMS = ["", "41", "41-", "-3", "41-3-1", " 41-3", "41-3\n", "041-3", "4.1-3", "٤١-3", "$", "41-*"]


@pytest.mark.parametrize("text", [*FORMS, *LONG])
def test_what_is_no_id(text: str) -> None:
    """It is refused by name, in one line."""
    with pytest.raises(InvalidEventId) as caught:
        EventId.parse(text)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["", "{}", "[1]", '[{"id": 1}]', '[{"id": "x", "type": "a"}]'])
def test_what_is_no_batch(text: str) -> None:
    """Somebody else's entry in the stream is a ValueError."""
    with pytest.raises(ValueError):
        batch(text)


def test_neighbours_go_on() -> None:
    """A batch that names the last event, or an older one, follows it."""
    streamed = [event(4, 10, (4, 9)), event(4, 11), event(4, 12, (4, 11))]
    found = merge(START, streamed, [])
    assert found.events == streamed and not found.hole


def test_what_is_known_is_left_out() -> None:
    """An entry's first events, and rows, up to the last event."""
    streamed = [event(4, 8, (4, 7)), event(4, 9), event(4, 10)]
    found = merge(START, streamed, [event(4, 9), event(4, 10)])
    assert [e.id for e in found.events] == [(4, 10)] and not found.hole


def test_a_gap_that_is_durable_is_filled() -> None:
    """All between two neighbours is in Postgres."""
    rows = [event(4, 10), event(4, 11)]
    found = merge(START, [event(4, 12, (4, 11))], rows)
    assert [e.id.n for e in found.events] == [10, 11, 12] and not found.hole


@pytest.mark.parametrize("rows", [[], [event(4, 10)], [event(4, 11)]])
def test_a_gap_that_is_not_is_a_hole(rows: list[Event]) -> None:
    """Something is missing, whatever else is there."""
    assert merge(START, [event(4, 12, (4, 11))], rows).hole


def test_a_turn_whose_beginning_is_gone_is_a_hole() -> None:
    """The stream was trimmed in the middle of a later turn."""
    assert merge(START, [event(6, 5, (6, 4))], [event(5, 1), event(6, 1)]).hole


def test_the_end_of_an_earlier_turn_stands_before_the_next() -> None:
    """A crash kept it from the stream."""
    turn = Event(EventId(5, 0), "turn", "", {})
    found = merge(START, [turn, event(5, 1, (5, 0))], [event(4, 10)])
    assert [e.id for e in found.events] == [(4, 10), (5, 0), (5, 1)] and not found.hole


def test_a_short_event_is_taken_from_postgres() -> None:
    """Where Postgres has it; else as it came."""
    short = event(4, 10, (4, 9), short=True)
    whole = event(4, 10)
    assert merge(START, [short], [whole]).events == [whole]
    assert merge(START, [short], []).events == [short]
