"""What a chat model that books rooms well says, from the conversation alone."""

import json
from typing import Any

from tests.openai_server import Say, tool

#: What its finds are about; a Tuesday.
WISH = {"date": "2030-06-04", "start": "14:00", "people": 8}


def says(body: dict[str, Any]) -> Say:
    """The next step of a booking of R4."""
    messages = body["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        return _after(_call_of(messages, last["tool_call_id"]), str(last["content"]))
    before = next((m for m in reversed(messages) if m.get("tool_calls")), None)
    names = [call["function"]["name"] for call in (before or {}).get("tool_calls", [])]
    asked = next((n for n in names if n in ("offer_rooms", "confirm_booking")), None)
    text = _text(last)
    if "cancel" in text:
        return tool("cancel_request")
    if asked == "offer_rooms":
        return tool(
            "confirm_booking", room_id="R4", message="Orchid, tomorrow at two. Is that right?"
        )
    if asked == "confirm_booking":
        return tool("book_room", room_id="R4")
    return tool("find_rooms", **WISH)


def _after(name: str, result: str) -> Say:
    if name == "find_rooms":
        return tool("offer_rooms", message="Which of these rooms would you like?")
    if name == "book_room":
        return Say(f"All set. {result}")
    return Say("As you wish.")


def _call_of(messages: list[dict[str, Any]], call_id: str) -> str:
    calls = (c for m in messages for c in m.get("tool_calls") or [])
    return next(str(c["function"]["name"]) for c in calls if c["id"] == call_id)


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else json.dumps(content)
