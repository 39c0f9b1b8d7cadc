"""What a thread of the assistant knows, and the one `reset` before the next request.

All of it is JSON-plain but ``messages``. Dates and times are those of the rooms' time zone
(FLEET_BOOKING_ZONE): ``"2026-12-01"``, ``"14:00"``.
"""

from typing import Annotated, Any, Literal, NotRequired

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

Phase = Literal["COLLECTING_SLOTS", "AWAITING_SELECTION", "CONFIRMING", "BOOKED"]
Language = Literal["zh", "en"]
Half = Literal["am", "pm", "night"]
Outcome = Literal["booked", "cancelled"]


#: Minutes, where nobody said how long.
LENGTH = 60
#: Minutes; no meeting is longer. One more stands for whatever is.
LONGEST = 24 * 60
#: Stands for a day that the calendar has not.
NO_DAY = "0000-00-00"
#: No larger number of people is taken for one.
MOST_PEOPLE = 999_999


class Slots(TypedDict, total=False):
    """What is wanted; a name that is not there has not been said. ``half``: of the day, while
    the hour has not been said; beside a start it is ``"night"``, and tells that the date is the
    day after the one that was meant: twelve at night is the next day's 00:00."""

    date: str
    half: Half
    start: str
    minutes: int
    people: int
    equipment: list[str]


class Slot(TypedDict):
    """A span of time: ISO, with the offset of the rooms' time zone."""

    start: str
    end: str


class Candidate(TypedDict):
    """A room that is free. ``name`` is in the user's language."""

    id: str
    name: str
    names: list[str]
    capacity: int
    equipment: list[str]
    slot: Slot


class Wish(TypedDict):
    """What a person has said yes to, exactly."""

    room_id: str
    slot: Slot
    people: int


class Booking(TypedDict):
    """What was booked."""

    booking_id: str
    room_id: str
    room: str
    slot: Slot
    people: int


class BookingInput(TypedDict):
    """What a producer sends: a message of the user's, ``{"role": "user", "content": …}``."""

    messages: Annotated[list[AnyMessage], add_messages]


class BookingState(BookingInput):
    """The thread's state. All but the messages, the language, the time and `earlier` belong to one
    request, and start anew with the next one: see `reset`.

    since
        Id of the request's first message: planners see none before it.
    now
        When the person's latest message was accepted: what "tomorrow" is counted from.
    problem
        Why there is nothing to offer, or not what was wanted; for people.
    earlier
        What was booked last in this conversation, by a request that is over.
    result
        What `act` has found out and `observe` has not yet taken in.
    """

    phase: NotRequired[Phase]
    language: NotRequired[Language]
    now: NotRequired[str]
    since: NotRequired[str | None]
    slots: NotRequired[Slots]
    candidates: NotRequired[list[Candidate]]
    room: NotRequired[str | None]
    confirmed: NotRequired[Wish | None]
    problem: NotRequired[str | None]
    result: NotRequired[dict[str, Any] | None]
    booking: NotRequired[Booking | None]
    earlier: NotRequired[Booking | None]
    outcome: NotRequired[Outcome | None]
    steps: NotRequired[int]


def reset() -> dict[str, Any]:
    """A request that has just begun: every field that belongs to one."""
    return {
        "phase": "COLLECTING_SLOTS",
        "since": None,
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
