"""Messages of a chat as plain data: one form for events, snapshots and pages.

``{message_id, role: user|assistant|tool|system, text, content?, tool_calls?: [{id, name, args}],
tool_call_id?, name?}``; ``{"removed": id}`` for one that takes another away. A message is the
object itself, what a node has written for it, or plain data as a checkpoint gives it back.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphs.chats import text_of
from graphs.values import plain

#: The id by which LangGraph's RemoveMessage takes all away.
REMOVE_ALL = "__remove_all__"
_ROLES = {
    "human": "user",
    "ai": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
    "function": "tool",
}
_MESSAGES = "messages"
_KNOWN = frozenset({"user", *_ROLES.values()})


def message_data(value: Any) -> dict[str, Any] | None:
    """The message, whichever form a node gave it in; None for what is none."""
    found = plain(value)
    if isinstance(found, str):
        found = {"type": "human", "content": found}
    elif isinstance(found, list) and len(found) == 2 and all(isinstance(f, str) for f in found):
        found = {"type": found[0], "content": found[1]}
    if not isinstance(found, Mapping):
        return None
    if found.get("type") == "remove":
        return {"removed": found.get("id")}
    role = _role(found)
    if role is None:
        return None
    content = found.get("content")
    made = {"message_id": found.get("id"), "role": role, "text": text_of(content)}
    if not isinstance(content, str | None):
        made["content"] = content
    if calls := [_call(call) for call in found.get("tool_calls") or ()]:
        made["tool_calls"] = calls
    return made | {n: found[n] for n in ("tool_call_id", "name") if found.get(n)}


def messages_data(messages: Iterable[Any], where: str) -> Iterator[dict[str, Any]]:
    """Those of a list; one that is stored without an id goes by its place in it."""
    for n, one in enumerate(messages):
        if (data := message_data(one)) is not None:
            if "removed" not in data and not data["message_id"]:
                data["message_id"] = f"{where}:{n}"
            yield data


def _role(found: Mapping[str, Any]) -> str | None:
    """user, assistant, tool or system; a ChatMessage's own word; None: it is no message."""
    kind = str(found.get("type") or found.get("role") or "").removesuffix("MessageChunk").lower()
    if kind == "chat":
        said = str(found.get("role") or "")
        return _ROLES.get(said, said) or None
    role = _ROLES.get(kind, kind)
    return role if role in _KNOWN else None


def conversation(values: Mapping[str, Any]) -> str:
    """The channel of a state that holds the messages; "" where none does. Which it is the graph
    knows, which is not here."""
    if _MESSAGES in values:
        return _MESSAGES if _are_messages(values[_MESSAGES]) else ""
    return next((n for n, v in values.items() if v and _are_messages(v)), _MESSAGES)


def _are_messages(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, Mapping) and "content" in one and message_data(one) is not None
        for one in value
    )


def folded(messages: Iterable[dict[str, Any]], more: Iterable[Any]) -> list[dict[str, Any]]:
    """The list after these messages too, as LangGraph's add_messages has it: one of the same
    id takes the older one's place."""
    found = list(messages)
    for one in more:
        removed = one.get("removed")
        if removed == REMOVE_ALL:
            found = []
        elif "removed" in one:
            found = [m for m in found if m["message_id"] != removed]
        else:
            name = one.get("message_id")
            at = [n for n, m in enumerate(found) if name is not None and m["message_id"] == name]
            if at:
                found[at[0]] = one
            else:
                found.append(one)
    return found


def unanswered(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls that have no result yet, in order."""
    listed = list(messages)
    answered = {m.get("tool_call_id") for m in listed if m["role"] == "tool"}
    return [
        dict(call)
        for m in listed
        for call in m.get("tool_calls") or ()
        if call["id"] not in answered
    ]


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": call.get("id"), "name": call.get("name"), "args": call.get("args")}
