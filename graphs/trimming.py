"""Trimming: a long chat keeps its last turns, and a summary of those before them.

A turn begins with what the person said, so a tool call is never parted from its results.

    builder.add_node("trim", trim(turns=20, summarize=shorten))

where ``shorten(messages, summary)`` gives the new summary's text from the messages that are
to go and the summary so far (None at first). Without it they go without a trace. Models
and effects may be called in it as in any node.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from langchain_core.messages import (
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)

Messages: TypeAlias = Sequence[AnyMessage]
Summarize: TypeAlias = Callable[[list[AnyMessage], str | None], str | Awaitable[str]]
Node: TypeAlias = Callable[[Any], Any]


def last_turns(messages: Messages, turns: int) -> list[AnyMessage]:
    """The system messages that lead, and the last ``turns`` turns. For a model's input, say."""
    gone = {id(message) for message in before_last_turns(messages, turns)}
    return [message for message in messages if id(message) not in gone]


def before_last_turns(messages: Messages, turns: int) -> list[AnyMessage]:
    """The messages that :func:`last_turns` leaves out, in order."""
    if turns < 1:
        raise ValueError(f"turns is {turns}: at least one is kept")
    begins = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if len(begins) <= turns:
        return []
    leading = 0
    while isinstance(messages[leading], SystemMessage):
        leading += 1
    return list(messages[leading : begins[-turns]])


def trim(
    turns: int,
    *,
    summarize: Summarize | None = None,
    slack: int = 0,
    messages_key: str = "messages",
    summary_key: str = "summary",
) -> Node:
    """A node that trims the state's messages, which need LangGraph's ``add_messages``.

    slack: further turns that are let pile up first, so that a summary is made once for
    several turns. The summary is written to ``summary_key``, which the state must have when
    ``summarize`` is given. The node is async when ``summarize`` is.
    """
    if turns < 1 or slack < 0:
        raise ValueError(
            f"trim keeps at least one turn and has no negative slack: {turns}, {slack}"
        )

    def gone(state: Any) -> list[AnyMessage]:
        messages = _get(state, messages_key) or []
        if not before_last_turns(messages, turns + slack):
            return []
        return before_last_turns(messages, turns)

    def update(old: list[AnyMessage], summary: Any) -> dict[str, Any]:
        removed = {messages_key: [RemoveMessage(id=str(message.id)) for message in old]}
        return removed if summarize is None else removed | {summary_key: summary}

    def trim_messages(state: Any) -> dict[str, Any]:
        old = gone(state)
        if not old:
            return {}
        summary = summarize(old, _get(state, summary_key)) if summarize else None
        return update(old, summary)

    async def atrim_messages(state: Any) -> dict[str, Any]:
        found = trim_messages(state)
        if inspect.isawaitable(summary := found.get(summary_key)):
            found[summary_key] = await summary
        return found

    is_async = summarize is not None and (
        inspect.iscoroutinefunction(summarize)
        or inspect.iscoroutinefunction(getattr(summarize, "__call__", None))  # noqa: B004
    )
    return atrim_messages if is_async else trim_messages


def _get(state: Any, name: str) -> Any:
    """A field of the state, which may be a mapping or an object."""
    return state.get(name) if isinstance(state, dict) else getattr(state, name, None)
