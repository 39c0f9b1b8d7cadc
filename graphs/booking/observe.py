"""Takes in what a call has found out: into the state, and into the messages as its result."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from graphs.booking import texts, tools, words
from graphs.booking.plaintext import normalised
from graphs.booking.replies import reply_of
from graphs.booking.rules import missing_of
from graphs.booking.state import Booking, BookingState, Language, Wish
from graphs.booking.view import view_of

#: (what the tool said, changes of the state, further messages)
Seen = tuple[str, dict[str, Any], list[AnyMessage]]


def observe(state: BookingState) -> dict[str, Any]:
    """The node: one result."""
    result = state.get("result")
    if result is None:
        return {}
    refused = result.get("refused")
    said, update, further = _OBSERVE[result["name"]](state, result) if refused is None else (
        refused, {}, []
    )  # fmt: skip
    messages: list[AnyMessage] = [_result(result, said, refused is not None)]
    if further:
        # Other calls of that message were decided on without these words.
        language: Language = update.get("language") or state.get("language", "en")
        messages += closed([*state["messages"], *messages], language)
    return {"result": None, **update, "messages": [*messages, *further]}


def _result(result: dict[str, Any], said: str, failed: bool) -> ToolMessage:
    return ToolMessage(
        content=said,
        name=result["name"],
        tool_call_id=result["call_id"],
        id=f"{result['call_id']}-result",
        status="error" if failed else "success",
    )


def closed(messages: list[AnyMessage], language: Language) -> list[AnyMessage]:
    """A result for each of the newest calls that has none, since a person has said something
    first."""
    asked = next(m for m in reversed(messages) if isinstance(m, AIMessage))
    answered = {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}
    left = [c for c in asked.tool_calls if c["id"] not in answered]
    said = texts.say("not_done", language)
    return [_result({"call_id": c["id"], "name": c["name"]}, said, True) for c in left]


def _found(state: BookingState, result: dict[str, Any]) -> Seen:
    language = state.get("language", "en")
    view, slots = view_of(state), result["slots"]
    candidates = result.get("candidates", [])
    problem = result.get("problem")
    update = {
        "slots": slots,
        "candidates": candidates,
        "room": None,
        "confirmed": None,
        "phase": "COLLECTING_SLOTS",
        # That a room was taken is still to be told.
        "problem": state.get("problem"),
    }
    if candidates:
        return (
            texts.say("found", language, names=texts.room_lines(candidates, language)),
            update,
            [],
        )
    if problem is None:
        what = texts.listed((texts.say(n, language) for n in missing_of(slots)), language)
        return texts.say("missing", language, what=what), update, []
    slot = result.get("slot")
    said = texts.say(
        problem,
        language,
        when=texts.when(slot, language, view.now) if slot else "",
        people=slots.get("people"),
        largest=result.get("largest"),
        with_=texts.with_equipment(slots.get("equipment", []), language),
    )
    before = state.get("problem")
    return said, update | {"problem": f"{before} {said}" if before else said}, []


def _answered(state: BookingState, result: dict[str, Any]) -> Seen:
    candidates = state.get("candidates", [])
    before = state.get("language", "en")
    reply = reply_of(result["reply"], before, candidates)
    language = words.language_of(reply.text) or before
    update: dict[str, Any] = {
        "now": result["now"],
        "language": language,
        "problem": None,
        "steps": 0,
    }
    if result["name"] == "confirm_booking" and _says_yes(reply.text, reply.confirmed):
        update["confirmed"] = _wish(state)
    said = HumanMessage(
        content=reply.text,
        id=result["message_id"] or f"{result['call_id']}-reply",
        additional_kwargs={"reply": reply.data()} if reply.data() else {},
    )
    return texts.say("answered", language), update, [said]


def _says_yes(text: str, confirmed: bool | None) -> bool:
    """Words are read by rules here whoever plans: nothing is booked on a model's word."""
    return confirmed if confirmed is not None else words.verdict_of(normalised(text)) == "yes"


def _wish(state: BookingState) -> Wish | None:
    room = next((r for r in state.get("candidates", []) if r["id"] == state.get("room")), None)
    if room is None:
        return None
    return Wish(room_id=room["id"], slot=room["slot"], people=state["slots"]["people"])


def _booked(state: BookingState, result: dict[str, Any]) -> Seen:
    language, room = state.get("language", "en"), result["room"]
    if result["booking_id"] is None:
        refused = result.get("reason") == "refused"
        problem = texts.say("refused" if refused else "taken", language, room=room["name"])
        update: dict[str, Any] = {
            "candidates": [],
            "room": None,
            "confirmed": None,
            "problem": problem,
        }
        said = texts.say("not_possible" if refused else "not_booked", language)
        return said, update | {"phase": "COLLECTING_SLOTS"}, []
    booking = Booking(
        booking_id=result["booking_id"],
        room_id=room["id"],
        room=room["name"],
        slot=room["slot"],
        people=state["slots"]["people"],
    )
    said = texts.booked(booking, language, datetime.fromisoformat(state["now"]))
    return said, {"booking": booking, "outcome": "booked", "phase": "BOOKED", "problem": None}, []


def _cancelled(state: BookingState, result: dict[str, Any]) -> Seen:
    update = {"outcome": "cancelled", "phase": "COLLECTING_SLOTS"}
    view = view_of(state)
    return texts.given_up(state.get("earlier"), view.language, view.now), update, []


_OBSERVE: dict[str, Callable[[BookingState, dict[str, Any]], Seen]] = {
    "find_rooms": _found,
    "book_room": _booked,
    "cancel_request": _cancelled,
    **dict.fromkeys(tools.QUESTIONS, _answered),
}
