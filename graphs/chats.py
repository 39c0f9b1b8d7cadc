"""Graphs that keep a conversation: which channel holds it, and the text of a content."""

import functools
from collections.abc import Mapping
from typing import Any

from langgraph.channels.binop import BinaryOperatorAggregate
from langgraph.channels.delta import DeltaChannel
from langgraph.graph.message import add_messages
from langgraph.pregel import Pregel

from graphs.values import clean_text

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
