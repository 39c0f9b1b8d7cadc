"""A history of messages as models take it: each tool call with its result behind it.

A turn that was cancelled, died for good or was corrected by hand leaves a call without a
result, and a person's words may have come between a call and its result. Providers refuse
both, from then on for ever.
"""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

#: The result of a call that has none.
UNDONE = "This call has no result: it was broken off, and may or may not have been carried out."


def repaired(messages: Sequence[AnyMessage], undone: str = UNDONE) -> list[AnyMessage]:
    """The messages with a result right behind each tool call, in the order of the calls.

    Results that stand elsewhere are moved there; calls without one get ``undone``, marked as
    an error; results without a call are left out, and so is a second result of one call. The
    messages given are not changed: call it before each call of a model.
    """
    results: dict[str, ToolMessage] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            results.setdefault(message.tool_call_id, message)
    found: list[AnyMessage] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        found.append(message)
        if isinstance(message, AIMessage):
            for call in [*message.tool_calls, *message.invalid_tool_calls]:
                found.append(_result(str(call["id"] or ""), call["name"], results, undone))
    return found


def _result(
    call_id: str, name: str | None, results: dict[str, ToolMessage], undone: str
) -> ToolMessage:
    if call_id in results:
        return results[call_id]
    return ToolMessage(content=undone, tool_call_id=call_id, name=name, status="error")
