"""What the booking assistant's next request finds of the one before: its messages, and what it
booked."""

from datetime import datetime
from typing import Any, get_type_hints

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from graphs.booking import graph, rooms
from graphs.booking.state import BookingState, reset
from graphs.booking.view import view_of

SLOT = {"start": "2030-06-04T14:00:00+00:00", "end": "2030-06-04T15:00:00+00:00"}
ROOM = {
    **{"id": "R3", "name": "Plum", "names": ["Plum", "梅"], "capacity": 8},
    **{"equipment": ["tv"], "slot": SLOT},
}
AT = datetime.fromisoformat("2030-06-05T10:00:00+00:00")
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
    "earlier": {"booking_id": "B0", "room_id": "R3", "room": "Plum", "slot": SLOT, "people": 8},
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
    "earlier": DIRTY["booking"],
    "outcome": None,
    "steps": 0,
}


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "said", lambda: rooms.Said(AT, "h2", "input"))


def received(dirty: dict[str, Any]) -> dict[str, Any]:
    state: BookingState = dirty  # type: ignore[assignment]
    return {**dirty, **graph.receive(state)}


def test_every_field_is_dirty_before() -> None:
    """Also one that comes later: it belongs into both tables above."""
    assert set(DIRTY) == set(CLEAN) == set(get_type_hints(BookingState))
    assert [n for n in DIRTY if DIRTY[n] == CLEAN[n]] == ["messages"]


def test_reset_names_every_field_of_a_request() -> None:
    """Also those that each message clears anyway."""
    others = ("messages", "language", "now", "earlier")
    ours = {n: value for n, value in CLEAN.items() if n not in others}
    assert reset() == {**ours, "since": None}


@pytest.mark.parametrize("outcome", ["booked", "cancelled"])
def test_the_next_request_starts_clean(outcome: str) -> None:
    """Field by field."""
    assert received({**DIRTY, "outcome": outcome}) == CLEAN


CALL = {"name": "offer_rooms", "args": {"message": "?"}, "id": "c9", "type": "tool_call"}
ASKED = [BEFORE[0], AIMessage("Which?", id="a1", tool_calls=[CALL]), NEXT]


def test_a_request_that_was_called_off_is_over_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread was cancelled, and a person has gone on."""
    off = rooms.Said(AT, "h2", "input", called_off=True)
    monkeypatch.setattr(rooms, "said", lambda: off)
    dirty = {**DIRTY, "messages": ASKED, "outcome": None}
    assert received(dirty) == {**CLEAN, "messages": ASKED}


def test_a_message_that_was_sent_too_early_to_answer_is_the_reply() -> None:
    """The question that it met gets its result, and the request goes on."""
    found = received({**DIRTY, "messages": ASKED, "outcome": None})
    assert found["since"] == "h1" and found["slots"] == DIRTY["slots"]
    [result] = found["messages"]
    assert (result.tool_call_id, result.status) == ("c9", "error")
    state: BookingState = {**found, "messages": [*ASKED, result]}  # type: ignore[typeddict-item]
    assert view_of(state).messages == [*ASKED[:2], result, NEXT]


def test_a_request_that_goes_on_is_kept() -> None:
    """But for what belongs to one message of the person's."""
    assert received({**DIRTY, "outcome": None}) == {
        **DIRTY,
        **{"outcome": None, "language": "zh", "now": CLEAN["now"], "problem": None, "steps": 0},
    }
