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
    if (asked := _approvals(payload)) is not None:
        return "\n\n".join(map(_action, asked)) or None
    if not isinstance(payload, Mapping):
        return None
    words = (payload.get(name) for name in _NAMES)
    return next((w for w in words if isinstance(w, str) and w), None)


def words_of(payload: Any, longest: int = 500) -> str:
    """As said_in, else the payload as JSON; one line of at most `longest` characters."""
    asked = _approvals(payload)
    said = said_in(payload) if asked is None else "; ".join(map(_action, asked))
    text = json.dumps(payload, ensure_ascii=False) if said is None else said
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _approvals(payload: Any) -> list[Any] | None:
    """What a HITLRequest, or a HumanInterrupt or a list of them, wants approved."""
    if isinstance(payload, Mapping):
        requests = payload.get("action_requests")
        if isinstance(requests, list):
            return requests
        payload = [payload]
    old = isinstance(payload, list) and payload
    return payload if old and all(map(_is_old, payload)) else None


def _is_old(item: Any) -> bool:
    return isinstance(item, Mapping) and isinstance(item.get("action_request"), Mapping)


def _action(request: Any) -> str:
    if not isinstance(request, Mapping):
        return str(request)
    described = request.get("description")
    if isinstance(described, str) and described:
        return described
    action = request["action_request"] if _is_old(request) else request
    name = action.get("name") or action.get("action")
    return f"{name} {json.dumps(action.get('args'), ensure_ascii=False)}"
