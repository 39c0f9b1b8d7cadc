"""Does one call of the planner's: looks for rooms, asks the person, books.

Plain results, for `observe` to take in. A call that makes no sense is no failure: the planner
is told, and may do better.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

from langgraph.types import interrupt
from pydantic import ValidationError

from graphs.booking import rooms, tools
from graphs.booking.state import LENGTH, LONGEST, BookingState, Candidate, Slot, Slots
from graphs.booking.view import View, view_of


class Refused(Exception):
    """The call makes no sense; the message is for the planner."""


class NoSuchTime(Exception):
    """``problem``: what to tell of it; ``slot``: which of the wishes has to be said again."""

    def __init__(self, problem: str, slot: Literal["date", "start"]) -> None:
        super().__init__(problem)
        self.problem, self.slot = problem, slot


def act(state: BookingState) -> dict[str, Any]:
    """The node: one call that has no result yet."""
    call = tools.next_call(state["messages"])
    if call is None:
        return {"result": None}
    view = view_of(state)
    try:
        result = _perform(view, call["name"], call["args"])
    except Refused as refused:
        result = {"refused": str(refused)}
    return {"result": {"call_id": call["id"], "name": call["name"], **result}}


def slot_of(slots: Slots, view: View) -> Slot:
    """The span of time that is wanted, in the rooms' time zone: as long as was said, also
    where the clocks are changed. Raises NoSuchTime."""
    zone = view.now.tzinfo
    try:
        wanted = datetime.fromisoformat(f"{slots['date']}T{slots['start']}").replace(tzinfo=zone)
        begin = wanted.astimezone(UTC)
        end = (begin + timedelta(minutes=slots.get("minutes", LENGTH))).astimezone(zone)
        start = begin.astimezone(zone)
    except (ValueError, OverflowError):
        raise NoSuchTime("bad_date", "date") from None
    if start.replace(tzinfo=None) != wanted.replace(tzinfo=None):
        # The clocks went past it.
        raise NoSuchTime("bad_time", "start")
    return Slot(start=start.isoformat(), end=end.isoformat())


def _perform(view: View, name: str, given: dict[str, Any]) -> dict[str, Any]:
    tool = tools.TOOLS.get(name)
    if tool is None:
        raise Refused(f"There is no tool {name}: use one of {', '.join(tools.TOOLS)}.")
    if view.state.get("outcome") is not None:
        raise Refused("This request is over: tell the user so, in one message without tools.")
    try:
        args = tool.model_validate(given).model_dump()
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Refused(f"{name} was given what it can't use: {where}: {first['msg']}") from None
    return _DO[name](view, args)


def _find_rooms(view: View, args: dict[str, Any]) -> dict[str, Any]:
    said = {name: value for name, value in args.items() if value is not None}
    slots = _with(view.slots, said)
    if (day := slots.get("date")) is not None and (problem := _problem_of(day, view)):
        return {"slots": _without(slots, "date"), "problem": problem}
    if slots.get("minutes", 0) > LONGEST:
        return {"slots": _without(slots, "minutes"), "problem": "too_long"}
    if not all(name in slots for name in ("date", "start", "people")):
        return {"slots": slots}
    try:
        return _free_rooms(view, slots, slot_of(slots, view))
    except NoSuchTime as none:
        return {"slots": _without(slots, none.slot), "problem": none.problem}
    except rooms.Unanswerable:
        return {"slots": slots, "problem": "unanswerable"}


def _free_rooms(view: View, slots: Slots, slot: Slot) -> dict[str, Any]:
    equipment = slots.get("equipment", [])
    if datetime.fromisoformat(slot["start"]) <= view.now:
        return {"slots": slots, "problem": "past", "slot": slot}
    found = rooms.free_rooms(slot, slots["people"], equipment, view.language)
    if found:
        return {"slots": slots, "candidates": found}
    largest = rooms.largest(equipment)
    problem = "full" if largest >= slots["people"] else "too_large"
    return {"slots": slots, "problem": problem, "slot": slot, "largest": largest}


def _with(slots: Slots, said: dict[str, Any]) -> Slots:
    """A half of the day alone asks for the hour anew; an hour alone is of no half any more."""
    alone = {"start", "half"} & said.keys()
    gone = {"start", "half"} - alone if len(alone) == 1 else set()
    return {n: v for n, v in {**slots, **said}.items() if n not in gone}  # type: ignore[return-value]


def _without(slots: Slots, name: str) -> dict[str, Any]:
    return {other: value for other, value in slots.items() if other != name}


def _problem_of(day: str, view: View) -> str | None:
    try:
        over = date.fromisoformat(day) < view.now.date()
    except ValueError:
        return "bad_date"
    return "past_day" if over else None


def _ask_user(view: View, args: dict[str, Any]) -> dict[str, Any]:
    data = {"missing": args["missing"], "known": dict(view.slots)}
    return _asked(view, "ask_user", args["message"], data)


def _offer_rooms(view: View, args: dict[str, Any]) -> dict[str, Any]:
    found = view.state.get("candidates", [])
    if not found:
        raise Refused("There are no rooms to offer: call find_rooms first.")
    data = {"candidates": found, "slot": found[0]["slot"], "people": view.slots.get("people")}
    return _asked(view, "offer_rooms", args["message"], data)


def _confirm_booking(view: View, args: dict[str, Any]) -> dict[str, Any]:
    room = candidate(view.state, args["room_id"])
    data = {"room": room, "slot": room["slot"], "people": view.slots.get("people")}
    return _asked(view, "confirm_booking", args["message"], data)


def _asked(view: View, tool: str, message: str, data: dict[str, Any]) -> dict[str, Any]:
    """Ask, and wait for as long as it takes. ``text``: words are an answer too."""
    kind, phase = tools.QUESTIONS[tool]
    asked = {"kind": kind, "message": message, "phase": phase, "text": True, "data": data}
    value = interrupt(asked)
    said = rooms.said()
    answered = said.message_id if said.kind == "answer" else None
    return {"reply": value, "now": said.at.isoformat(), "message_id": answered}


def _book_room(view: View, args: dict[str, Any]) -> dict[str, Any]:
    room = candidate(view.state, args["room_id"])
    wish = {"room_id": room["id"], "slot": room["slot"], "people": view.slots.get("people")}
    if view.state.get("confirmed") != wish:
        raise Refused("The user has not confirmed exactly this: call confirm_booking first.")
    slot, people = room["slot"], view.slots["people"]
    booked = rooms.book_room(
        room_id=room["id"],
        start=slot["start"],
        end=slot["end"],
        people=people,
        thread_id=rooms.thread_id(),
    )
    return {"room": room, **booked}


def _cancel_request(view: View, args: dict[str, Any]) -> dict[str, Any]:
    return {}


def candidate(state: BookingState, room_id: str) -> Candidate:
    """The room offered under that id. Raises Refused."""
    found = state.get("candidates", [])
    room = next((room for room in found if room["id"] == room_id), None)
    if room is None:
        known = ", ".join(r["id"] for r in found) or "none"
        raise Refused(f"{room_id} is not among the rooms that were found: {known}.")
    return room


_DO: dict[str, Callable[[View, dict[str, Any]], dict[str, Any]]] = {
    "find_rooms": _find_rooms,
    "ask_user": _ask_user,
    "offer_rooms": _offer_rooms,
    "confirm_booking": _confirm_booking,
    "book_room": _book_room,
    "cancel_request": _cancel_request,
}
