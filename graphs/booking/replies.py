"""Answers to the assistant's questions, in words or as data.

A person's words, ``{"text": …}``, ``{"room_id": "R3"}``, ``{"confirmed": true}``,
``{"cancel": true}``, or what other doors call a decision (``"approved"``, ``true``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphs.booking import texts
from graphs.booking.state import Candidate, Language
from graphs.values import plain


@dataclass(frozen=True, slots=True)
class Reply:
    """``text``: what the person said, or what the data means in their language. The others
    are None where words have to be read."""

    text: str
    room_id: str | None = None
    confirmed: bool | None = None
    cancel: bool = False

    def data(self) -> dict[str, Any]:
        """What a message keeps of it beside its text."""
        told = {"room_id": self.room_id, "confirmed": self.confirmed, "cancel": self.cancel or None}
        return {name: value for name, value in told.items() if value is not None}


def reply_of(value: Any, language: Language, candidates: list[Candidate]) -> Reply:
    """Read an answer. Whatever is of no known shape is taken as its text."""
    if isinstance(value, bool):
        return Reply(texts.say("yes" if value else "no", language), confirmed=value)
    if isinstance(value, Mapping):
        return _of_object(value, language, candidates)
    return Reply("" if value is None else str(plain(value)).strip())


def _of_object(value: Mapping[str, Any], language: Language, rooms: list[Candidate]) -> Reply:
    if value.get("cancel") is True:
        return Reply(texts.say("cancel", language), cancel=True)
    room_id = value.get("room_id")
    if isinstance(room_id, str):
        name = next((room["name"] for room in rooms if room["id"] == room_id), room_id)
        return Reply(name, room_id=room_id)
    if isinstance(value.get("confirmed"), bool):
        return reply_of(value["confirmed"], language, rooms)
    for name in ("text", "message", "content", "value", "answer"):
        if name in value:
            return reply_of(value[name], language, rooms)
    if isinstance(decisions := value.get("decisions"), list) and decisions:
        return reply_of(decisions[0], language, rooms)
    if isinstance(value.get("type"), str):
        return Reply(value["type"])
    return Reply(str(plain(dict(value))))
