"""How a question is answered on the page behind a link: buttons, a line of text, or both.

What is picked is only what the page offered; whether it fits the question is for the door to
say, as with any other answer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..answers import Verdict, takes_text
from ..errors import InvalidPayload
from ..payloads import once_each

#: What the field for typing takes: words; JSON or else words; a note beside a verdict.
Typed = Literal["text", "json", "note"]


@dataclass(frozen=True, slots=True)
class Button:
    label: str
    value: Any


@dataclass(frozen=True, slots=True)
class Form:
    buttons: tuple[Button, ...] = ()
    typed: Typed | None = None


_VERDICTS = (Button("Approve", Verdict(True)), Button("Reject", Verdict(False)))


def form_of(question: Mapping[str, Any]) -> Form:
    """The form of a question as ``fleet.link_seen`` gives it."""
    kind, payload = question["kind"], question["payload"]
    if kind == "approve":
        return Form(_VERDICTS, "note")
    if kind == "continue":
        return Form((Button("Continue", "continue"),))
    said = payload if isinstance(payload, dict) else {}
    buttons = _by_schema(question["response_schema"]) or _offered(kind, said)
    if takes_text(kind, payload) or _is_string(question["response_schema"]):
        return Form(buttons, "text")
    return Form(buttons, None if buttons else "json")


def answer_of(question: Mapping[str, Any], fields: Mapping[str, str]) -> Any:
    """The answer that a sent form is. Raises InvalidPayload."""
    form = form_of(question)
    typed = fields.get("text", "").strip()
    if "choice" in fields:
        value = _picked(form, fields["choice"])
        note = typed if form.typed == "note" else ""
        return Verdict(value.approve, note) if note and isinstance(value, Verdict) else value
    if not typed or form.typed not in ("text", "json"):
        raise InvalidPayload("Nothing was answered.", "Pick an answer, or write one.")
    return typed if form.typed == "text" else _json_or_words(typed)


def _picked(form: Form, choice: str) -> Any:
    # The parts of the form are numbered, so that a page holds no values to be changed.
    if choice.isascii() and choice.isdigit() and int(choice[:4]) < len(form.buttons):
        return form.buttons[int(choice[:4])].value
    raise InvalidPayload("That is no answer of this question.", "Pick one of the page's.")


def _json_or_words(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=once_each)
    except (ValueError, RecursionError):
        return text


def _by_schema(schema: Any) -> tuple[Button, ...]:
    if not isinstance(schema, dict):
        return ()
    if schema.get("type") == "boolean":
        return (Button("Yes", True), Button("No", False))
    values = schema.get("enum")
    if not isinstance(values, list) or len(values) > 50:
        return ()
    return tuple(Button(_label(value), value) for value in values)


def _is_string(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema


def _offered(kind: str, said: Mapping[str, Any]) -> tuple[Button, ...]:
    """What the payload offers to pick: plain options, a yes or no, candidates with an id."""
    options = said.get("options")
    if isinstance(options, list) and 0 < len(options) <= 50:
        return tuple(Button(_label(option), option) for option in options)
    if kind == "confirm":
        return (Button("Yes", {"confirmed": True}), Button("No", {"confirmed": False}))
    data = said.get("data")
    candidates = data.get("candidates") if isinstance(data, dict) else None
    if kind == "select_room" and isinstance(candidates, list):
        return tuple(
            Button(_label(room.get("name", room["id"])), {"room_id": room["id"]})
            for room in candidates[:50]
            if isinstance(room, dict) and "id" in room
        )
    return ()


def _label(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("label", value.get("name", value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
