"""What a question asks, in words for people: for chats, pages, AG-UI and logs."""

import json
from collections.abc import Mapping
from typing import Any

#: Of an object, where the words are.
_NAMES = ("message", "ask", "question", "text", "description")


def said_in(payload: Any) -> str | None:
    """The payload's own words; None where it has none."""
    if isinstance(payload, str):
        return payload
    if not isinstance(payload, Mapping):
        return None
    requests = payload.get("action_requests")
    if isinstance(requests, list):
        return "\n\n".join(map(_action, requests)) or None
    words = (payload.get(name) for name in _NAMES)
    return next((w for w in words if isinstance(w, str) and w), None)


def words_of(payload: Any, longest: int = 500) -> str:
    """As said_in, else the payload as JSON; one line of at most `longest` characters."""
    requests = payload.get("action_requests") if isinstance(payload, Mapping) else None
    said = "; ".join(map(_action, requests)) if isinstance(requests, list) else said_in(payload)
    text = json.dumps(payload, ensure_ascii=False) if said is None else said
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _action(request: Any) -> str:
    if not isinstance(request, Mapping):
        return str(request)
    described = request.get("description")
    if isinstance(described, str) and described:
        return described
    return f"{request.get('name')} {json.dumps(request.get('args'), ensure_ascii=False)}"
