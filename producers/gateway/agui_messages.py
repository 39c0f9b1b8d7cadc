"""Messages of a conversation: as the fleet's events tell them, and as AG-UI holds them.

The fleet's form is the data of a `message` event: ``{message_id, role, text, content?,
tool_calls?: [{id, name, args}], tool_call_id?, name?}``. Media travel as LangChain's content
blocks on our side and as AG-UI's parts on the other.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ag_ui.core import (
    AssistantMessage,
    FunctionCall,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from ag_ui.core.types import ContentPart
from pydantic import TypeAdapter, ValidationError

#: What has a text and an author.
Spoken = UserMessage | SystemMessage | AssistantMessage

_PARTS: TypeAdapter[list[ContentPart]] = TypeAdapter(list[ContentPart])
#: AG-UI's media parts and LangChain's content blocks that say the same.
_BLOCKS = {"image": "image", "audio": "audio", "video": "video", "document": "file"}
_KINDS = {block: part for part, block in _BLOCKS.items()}
#: A source of AG-UI's and the member of LangChain's block that holds it.
_SOURCES = {"data": "base64", "url": "url", "file": "file_id"}


def clean(text: Any) -> str:
    """Text that can be written as UTF-8: half of a surrogate pair is replaced."""
    found = text if isinstance(text, str) else "" if text is None else str(text)
    try:
        found.encode()
    except UnicodeEncodeError:
        return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return found


def arguments(args: Any) -> str:
    """A tool call's arguments as JSON text."""
    return clean(json.dumps({} if args is None else args, ensure_ascii=False, default=str))


def agui_message(data: Mapping[str, Any]) -> Spoken | ToolMessage:
    """The message as AG-UI has it in a snapshot."""
    role, message_id, text = data.get("role"), str(data["message_id"]), clean(data.get("text"))
    name = data.get("name")
    if role == "user":
        return UserMessage(id=message_id, content=_content(data, text), name=name)
    if role == "system":
        return SystemMessage(id=message_id, content=text, name=name)
    if role == "tool":
        call_id = str(data.get("tool_call_id") or "")
        return ToolMessage(id=message_id, content=_content(data, text), tool_call_id=call_id)
    calls = [
        ToolCall(
            id=str(call["id"]),
            function=FunctionCall(name=str(call["name"]), arguments=arguments(call.get("args"))),
        )
        for call in data.get("tool_calls") or ()
    ]
    return AssistantMessage(
        id=message_id, content=text or None, tool_calls=calls or None, name=name
    )


def same(ours: Iterable[Message], theirs: Iterable[Message]) -> bool:
    """Whether a client that holds `theirs` would gain nothing by a snapshot of `ours`."""
    return [_told(m) for m in ours] == [
        _told(m) for m in theirs if m.role not in ("activity", "reasoning")
    ]


def call_ids(message: Message) -> list[str]:
    """Ids of the tool calls that it makes."""
    return [call.id for call in getattr(message, "tool_calls", None) or ()]


def blocks(content: str | list[ContentPart]) -> str | list[dict[str, Any]]:
    """A user message's content as a graph takes it: text, or LangChain's content blocks."""
    if isinstance(content, str):
        return content
    return [_block(part) for part in content]


def plain_text(content: str | list[ContentPart] | None) -> str:
    """What of the content is text."""
    if not isinstance(content, list):
        return content or ""
    return "".join(part.text for part in content if part.type == "text")


def _content(data: Mapping[str, Any], text: str) -> Any:
    """Text, or parts where the content is more than text and all of it can be told."""
    content = data.get("content")
    if not isinstance(content, list) or not any(_is_media(item) for item in content):
        return text
    parts = [part for part in map(_part, content) if part is not None]
    try:
        return _PARTS.validate_python(parts)
    except ValidationError:
        return text


def _is_media(item: Any) -> bool:
    return isinstance(item, Mapping) and item.get("type") in _KINDS


def _part(item: Any) -> dict[str, Any] | None:
    if isinstance(item, str):
        return {"type": "text", "text": clean(item)}
    if not isinstance(item, Mapping):
        return None
    if item.get("type") == "text":
        return {"type": "text", "text": clean(item.get("text"))}
    for source, member in _SOURCES.items():
        if item.get("type") in _KINDS and isinstance(item.get(member), str):
            found = {"type": source, "value": item[member], "mime_type": item.get("mime_type")}
            return {"type": _KINDS[item["type"]], "source": found}
    return None


def _block(part: ContentPart) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    source = part.source
    block = {"type": _BLOCKS[part.type], _SOURCES[source.type]: source.value}
    return {**block, "mime_type": source.mime_type} if source.mime_type else block


def _told(message: Message) -> tuple[Any, ...]:
    calls = [
        (call.id, call.function.name, _canonical(call.function.arguments))
        for call in getattr(message, "tool_calls", None) or ()
    ]
    answers = getattr(message, "tool_call_id", None)
    return message.id, message.role, message.content or "", calls, answers


def _canonical(args: str) -> str:
    """The same for arguments that a client has written in its own way."""
    try:
        return json.dumps(json.loads(args), sort_keys=True)
    except (ValueError, RecursionError):
        return args
