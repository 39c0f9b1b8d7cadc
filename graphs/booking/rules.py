"""The planner that goes by rules: no network, the same answer each time."""

import uuid
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from graphs.booking import texts, tools
from graphs.booking.dates import Named
from graphs.booking.plaintext import normalised
from graphs.booking.reading import Reading, by_the_calendar, names_any_week, read, still_to_come
from graphs.booking.state import Candidate, Slots
from graphs.booking.times import bare_hour
from graphs.booking.view import View, text_of

#: What a request can't do without, in the order in which it is asked for.
NEEDED = ("date", "start", "people")


def decide(view: View) -> AIMessage:
    """What to do next, seen the last message: a tool call, or the last word."""
    last = view.messages[-1] if view.messages else None
    if isinstance(last, HumanMessage):
        return _heard(view, last)
    if isinstance(last, ToolMessage):
        return _AFTER.get(last.name or "", _ask_what_is_missing)(view)
    return _ask(view, texts.say("hello", view.language))


# After a person's words


def _heard(view: View, said: HumanMessage) -> AIMessage:
    data = said.additional_kwargs.get("reply") or {}
    reading = read(text_of(said), view.now, view.phase, view.slots)
    if data.get("cancel") or reading.verdict == "cancel":
        return _call(view, "cancel_request", texts.say("cancelling", view.language))
    if changes := _changes(view, reading):
        return _find(view, **changes)
    if view.phase == "AWAITING_SELECTION":
        return _selected(view, said, data, reading)
    if view.phase == "CONFIRMING":
        return _confirmed(view, said, data, reading)
    return _ask_again(view, said, reading)


def _changes(view: View, reading: Reading) -> Slots:
    """What the words say of the request; a mere number answers what was asked."""
    changes = Slots(**reading.slots)
    if reading.number is not None and view.phase == "COLLECTING_SLOTS":
        asked = [name for name in missing_of(view.slots) if name != "date"]
        if asked == ["people"]:
            changes["people"] = reading.number
        elif asked == ["start"] and (hour := bare_hour(reading.number, view.slots.get("half"))):
            changes = by_the_calendar({**changes, "start": hour}, view.slots)
    if "start" in changes and "date" not in changes and _is_any_weeks(view):
        named = Named(view.now.date(), weekly=True)
        changes["date"] = still_to_come(named, changes["start"], view.now)
    if view.phase == "COLLECTING_SLOTS":
        return changes
    known: dict[str, Any] = {**view.slots}
    return changes if any(known.get(n) != v for n, v in changes.items()) else {}


def _is_any_weeks(view: View) -> bool:
    """Whether the day is today's, and was said as a weekday that a week later would do as
    well."""
    if view.slots.get("date") != view.now.date().isoformat():
        return False
    said = (text_of(m) for m in reversed(view.messages) if isinstance(m, HumanMessage))
    named = (names_any_week(text, view.now) for text in said)
    return next((weekly for weekly in named if weekly is not None), False)


def _selected(view: View, said: HumanMessage, data: dict[str, Any], reading: Reading) -> AIMessage:
    rooms = view.state.get("candidates", [])
    chosen = _chosen(rooms, said, data, reading)
    if chosen is None and reading.verdict == "yes" and len(rooms) == 1:
        chosen = rooms[0]
    if chosen is not None:
        return _confirm(view, chosen)
    if reading.verdict == "no":
        return _ask(view, "")
    return _offer(view, _not_understood(view, reading))


def _chosen(
    rooms: list[Candidate], said: HumanMessage, data: dict[str, Any], reading: Reading
) -> Candidate | None:
    """The room that is named or numbered."""
    named = _by_name(rooms, data.get("room_id") or text_of(said), exact="room_id" in data)
    number = reading.choice if reading.choice is not None else reading.number
    if named is not None or number is None or number == 0 or not -1 <= number <= len(rooms):
        return named
    return rooms[number - 1 if number > 0 else -1]


def _by_name(rooms: list[Candidate], said: str, exact: bool) -> Candidate | None:
    """The room that is named: by its id alone, or by whichever name stands in the words."""
    if exact:
        return next((room for room in rooms if room["id"] == said), None)
    words = normalised(said)
    named = [
        room
        for room in rooms
        if any(normalised(name) in words for name in (room["id"], *room["names"]))
    ]
    return named[0] if len(named) == 1 else None


def _confirmed(view: View, said: HumanMessage, data: dict[str, Any], reading: Reading) -> AIMessage:
    room = _room(view)
    yes = data.get("confirmed", {"yes": True, "no": False}.get(reading.verdict or ""))
    if room is None:
        return _find(view)
    if yes is True:
        return _call(view, "book_room", texts.say("booking", view.language), room_id=room["id"])
    other = _chosen(view.state.get("candidates", []), said, data, reading)
    if other is not None and other["id"] != room["id"]:
        return _confirm(view, other)
    if yes is False:
        return _offer(view, "")
    return _confirm(view, room, _not_understood(view, reading))


def _ask_again(view: View, said: HumanMessage, reading: Reading) -> AIMessage:
    """Words that say nothing of a room: a greeting at first, not understood later."""
    if view.messages[0].id == said.id:
        return _ask(view, texts.say("hello", view.language))
    return _ask(view, _not_understood(view, reading))


def _not_understood(view: View, reading: Reading) -> str:
    return texts.say("kept" if reading.verdict == "keep" else "unclear", view.language)


# After a tool


def _after_find(view: View) -> AIMessage:
    return _offer(view, "") if view.state.get("candidates") else _ask_what_is_missing(view)


def _after_book(view: View) -> AIMessage:
    if (booking := view.state.get("booking")) is not None:
        return _last_word(view, texts.booked(booking, view.language, view.now))
    room = _room(view)
    # Taken in the meantime: the others. Not confirmed: ask.
    return _find(view) if room is None else _confirm(view, room)


def _after_cancel(view: View) -> AIMessage:
    said = texts.given_up(view.state.get("earlier"), view.language, view.now)
    return _last_word(view, said)


def _ask_what_is_missing(view: View) -> AIMessage:
    return _ask(view, "")


_AFTER: dict[str, Callable[[View], AIMessage]] = {
    "find_rooms": _after_find,
    "book_room": _after_book,
    "cancel_request": _after_cancel,
}


# What is said and done


def missing_of(slots: Slots) -> list[str]:
    """What the request can't do without and has not been said."""
    return [name for name in NEEDED if name not in slots]


def _ask(view: View, before: str) -> AIMessage:
    language = view.language
    missing = missing_of(view.slots)
    problem = (view.state.get("problem") or "") if not before else ""
    if problem:
        message = problem
    elif missing:
        what = texts.listed((texts.say(name, language) for name in missing), language)
        message = texts.say("ask", language, what=what)
    else:
        message = texts.say("change", language)
    return _question(view, "ask_user", before, message, missing=missing)


def _offer(view: View, before: str) -> AIMessage:
    rooms = view.state.get("candidates", [])
    if not rooms:
        return _ask(view, before)
    language = view.language
    before = before or view.state.get("problem") or ""
    message = texts.say(
        "offer",
        language,
        when=texts.when(rooms[0]["slot"], language, view.now),
        people=view.slots.get("people"),
        count=len(rooms),
        rooms=texts.room_lines(rooms, language),
    )
    return _question(view, "offer_rooms", before, message)


def _confirm(view: View, room: Candidate, before: str = "") -> AIMessage:
    language = view.language
    message = texts.say(
        "confirm",
        language,
        room=room["name"],
        capacity=room["capacity"],
        when=texts.when(room["slot"], language, view.now),
        people=view.slots.get("people"),
    )
    return _question(view, "confirm_booking", before, message, room_id=room["id"])


def _find(view: View, **changes: Any) -> AIMessage:
    return _call(view, "find_rooms", texts.say("looking", view.language), **changes)


def _room(view: View) -> Candidate | None:
    wanted = view.state.get("room")
    return next((r for r in view.state.get("candidates", []) if r["id"] == wanted), None)


def _question(view: View, name: str, before: str, message: str, **args: Any) -> AIMessage:
    said = f"{before} {message}".strip() if view.language == "en" else f"{before}{message}"
    return _call(view, name, said, message=said, **args)


def _call(view: View, name: str, content: str, **args: Any) -> AIMessage:
    message_id = _id(view)
    made = tools.call(name, f"call_{message_id}", **args)
    return AIMessage(content=content, id=message_id, tool_calls=[made])


def _last_word(view: View, content: str) -> AIMessage:
    return AIMessage(content=content, id=_id(view))


def _id(view: View) -> str:
    """The same at each attempt: what is seen of one is not beside what is seen of the next."""
    last = view.messages[-1].id if view.messages else view.now.isoformat()
    return f"ai-{uuid.uuid5(uuid.NAMESPACE_OID, str(last)).hex[:20]}"
