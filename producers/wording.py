"""What a question asks, in a line for people: for chats, pages and logs."""

import json
from collections.abc import Mapping
from typing import Any

#: Of an object, where the words are.
_NAMES = ("message", "ask", "question", "text")


def words_of(payload: Any, longest: int = 500) -> str:
    """In the payload's own words where it has any, else the payload; one line of at most
    `longest` characters."""
    said = payload
    if isinstance(payload, Mapping):
        requests = payload.get("action_requests")
        if isinstance(requests, list):
            said = "; ".join(map(_action, requests))
        else:
            words = (payload.get(name) for name in _NAMES)
            said = next((w for w in words if isinstance(w, str) and w), payload)
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _action(request: Any) -> str:
    if not isinstance(request, Mapping):
        return str(request)
    described = request.get("description")
    if isinstance(described, str) and described:
        return described
    return f"{request.get('name')} {json.dumps(request.get('args'), ensure_ascii=False)}"
