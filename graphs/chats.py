"""Graphs that keep a conversation: which channel holds it, and its messages as clients see them.

Shapes: docs/events.md, event ``message``.
"""

import functools
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import add_messages
from langgraph.pregel import Pregel

from graphs.values import clean_text, plain

_DELTA = "_messages_delta_reducer"


def messages_channel(graph: "Pregel[Any, Any, Any, Any]") -> str | None:
    """Name of the channel whose reducer is LangGraph's ``add_messages``; None: no chat.

    ``messages`` where there are several.
    """
    found = [name for name, channel in graph.channels.items() if _adds_messages(channel)]
    return "messages" if "messages" in found else next(iter(found), None)


def _adds_messages(channel: Any) -> bool:
    if isinstance(channel, DeltaChannel):
        return getattr(channel.reducer, "__name__", None) == _DELTA
    if not isinstance(channel, BinaryOperatorAggregate):
        return False
    operator = channel.operator
    if isinstance(operator, functools.partial):
        operator = operator.func
    return operator is add_messages


def message_data(message: BaseMessage) -> dict[str, Any]:
    """As the event ``message`` holds it, but for its place: JSON-plain.

    ``{message_id, role, text, content?, tool_calls?, tool_call_id?, name?}``; content only
    where it is more than the text.
    """
    data: dict[str, Any] = {
        "message_id": message.id,
        "role": role(message),
        "text": text_of(message.content),
    }
    if not isinstance(message.content, str):
        data["content"] = plain(message.content)
    if isinstance(message, AIMessage) and message.tool_calls:
        data["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "args": plain(call["args"])}
            for call in message.tool_calls
        ]
    if isinstance(message, ToolMessage):
        data["tool_call_id"] = message.tool_call_id
    if message.name:
        data["name"] = message.name
    return data


def role(message: BaseMessage) -> str:
    """user, assistant, tool or system; another word where a ChatMessage has one."""
    match message:
        case HumanMessage():
            return "user"
        case AIMessage():
            return "assistant"
        case ToolMessage():
            return "tool"
        case SystemMessage():
            return "system"
        case ChatMessage():
            return message.role
    return {"human": "user", "ai": "assistant"}.get(message.type, message.type)


def text_of(content: Any) -> str:
    """The text of a message's content: a string, or a list of blocks."""
    if isinstance(content, str):
        return clean_text(content)
    if not isinstance(content, list):
        return ""
    parts = []
    for block in content:
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, Mapping) and block.get("type", "text") == "text":
            parts.append(str(block.get("text", "")))
    return clean_text("".join(parts))
