"""What the booking assistant's next request finds of the one before: nothing but its messages."""

from datetime import datetime
from typing import Any, get_type_hints

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from graphs.booking import graph, rooms
from graphs.booking.state import BookingState, reset

SLOT = {"start": "2030-06-04T14:00:00+00:00", "end": "2030-06-04T15:00:00+00:00"}
ROOM = {
    **{"id": "R3", "name": "Plum", "names": ["Plum", "梅"], "capacity": 8},
    **{"equipment": ["tv"], "slot": SLOT},
}
BEFORE = [HumanMessage("a room", id="h1"), AIMessage("Booked.", id="a1")]
NEXT = HumanMessage("再订一间", id="h2")

#: A request that is over, with something in each field.
DIRTY: dict[str, Any] = {
    "messages": [*BEFORE, NEXT],
    "phase": "BOOKED",
    "language": "en",
    "now": "2030-06-03T09:00:00+00:00",
    "since": "h1",
    "slots": {"date": "2030-06-04", "start": "14:00", "people": 8, "equipment": ["tv"]},
    "candidates": [ROOM],
    "room": "R3",
    "confirmed": {"room_id": "R3", "slot": SLOT, "people": 8},
    "problem": "Sorry, Plum has just been taken.",
    "result": {"call_id": "c1", "name": "find_rooms", "slots": {"people": 8}},
    "booking": {"booking_id": "B1", "room_id": "R3", "room": "Plum", "slot": SLOT, "people": 8},
    "outcome": "booked",
    "steps": 7,
}
CLEAN: dict[str, Any] = {
    "messages": [*BEFORE, NEXT],
    "phase": "COLLECTING_SLOTS",
    "language": "zh",
    "now": "2030-06-05T10:00:00+00:00",
    "since": "h2",
    "slots": {},
    "candidates": [],
    "room": None,
    "confirmed": None,
    "problem": None,
    "result": None,
    "booking": None,
    "outcome": None,
    "steps": 0,
}


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    at = datetime.fromisoformat("2030-06-05T10:00:00+00:00")
    monkeypatch.setattr(rooms, "said", lambda: rooms.Said(at, "h2", "input"))


def received(dirty: dict[str, Any]) -> dict[str, Any]:
    state: BookingState = dirty  # type: ignore[assignment]
    return {**dirty, **graph.receive(state)}


def test_every_field_is_dirty_before() -> None:
    """Also one that comes later: it belongs into both tables above."""
    assert set(DIRTY) == set(CLEAN) == set(get_type_hints(BookingState))
    assert [n for n in DIRTY if DIRTY[n] == CLEAN[n]] == ["messages"]


def test_reset_names_every_field_of_a_request() -> None:
    """Also those that each message clears anyway."""
    ours = {n: value for n, value in CLEAN.items() if n not in ("messages", "language", "now")}
    assert reset() == {**ours, "since": None}


@pytest.mark.parametrize("outcome", ["booked", "cancelled"])
def test_the_next_request_starts_clean(outcome: str) -> None:
    """Field by field."""
    assert received({**DIRTY, "outcome": outcome}) == CLEAN


def test_a_request_that_was_called_off_is_over_too() -> None:
    """Its question has no result, and a person has gone on."""
    call = {"name": "offer_rooms", "args": {"message": "?"}, "id": "c9", "type": "tool_call"}
    messages = [BEFORE[0], AIMessage("Which?", id="a1", tool_calls=[call]), NEXT]
    dirty = {**DIRTY, "messages": messages, "outcome": None}
    assert received(dirty) == {**CLEAN, "messages": messages}


def test_a_request_that_goes_on_is_kept() -> None:
    """But for what belongs to one message of the person's."""
    assert received({**DIRTY, "outcome": None}) == {
        **DIRTY,
        **{"outcome": None, "language": "zh", "now": CLEAN["now"], "problem": None, "steps": 0},
    }
