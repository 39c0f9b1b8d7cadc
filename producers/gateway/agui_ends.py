"""Whether a run is over, and how: from what is recorded of its thread.

A run of AG-UI lasts from its message's acceptance until the thread has settled for it: the
turn is done, a question waits for a person, or it can't go on by itself. What the events say
only makes us look; what is committed decides.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ag_ui.core import Interrupt

from ..answers import takes_text
from ..status import Question, ThreadStatus
from ..wording import said_in
from .agui_answers import may_edit, only_action

_FAILED = {
    "failed": "The thread's work has failed.",
    "in_doubt": "Whether a call to the outside has happened is not known; a person has to say.",
    "incompatible": "No worker runs a version of the graph that this thread can go on with.",
}
#: AG-UI's words for kinds of questions; of others the kind is told after "fleet:".
_REASONS = {
    "approve": "confirmation",
    "continue": "confirmation",
    "confirm": "confirmation",
    "clarify": "input_required",
    "value": "input_required",
}
_OPEN = frozenset({"pending", "claimed"})
#: Ends of a turn after which its message is tried again without anybody's doing.
GOES_ON = frozenset({"retry", "released", "drained", "lost"})


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended. code, message: of an error."""

    kind: Literal["success", "interrupt", "cancelled", "error"]
    interrupts: tuple[Interrupt, ...] = ()
    code: str | None = None
    message: str = ""


def end_of(
    thread: ThreadStatus,
    ours: Collection[str] | None,
    refused: Mapping[str, str | None],
    calls: Sequence[Mapping[str, Any]] = (),
) -> End | None:
    """The end of a run that is about the messages `ours`, or about all mail (None); None while
    it goes on. thread: with all mail that is not done. refused: of messages that were given up
    unread, why. calls: of tools, without a result yet.
    """
    if thread.status in _FAILED:
        said = thread.last_error or _FAILED[thread.status]
        return End("error", code=thread.status, message=said)
    rows = [m for m in thread.messages if m.status in _OPEN]
    if any(ours is None or row.message_id in ours for row in rows):
        return None
    if thread.status == "waiting" and thread.questions:
        return End("interrupt", tuple(interrupt_of(q, calls) for q in thread.questions))
    for name in ours or ():
        if name in refused:
            said = refused[name] or "The message was given up before it was worked on."
            return End("error", code="refused", message=said)
    if ours is None and thread.status == "running":
        return None
    return End("cancelled" if thread.status == "cancelled" else "success")


def interrupt_of(question: Question, calls: Sequence[Mapping[str, Any]] = ()) -> Interrupt:
    """The question as AG-UI asks it. metadata: ``{"kind", "payload"}``."""
    kind, payload, call = question.kind, question.payload, None
    if kind == "approve":
        call = _call_asked_about(payload, calls)
    return Interrupt(
        id=question.question_id,
        reason="tool_call" if call else _REASONS.get(kind, f"fleet:{kind}"),
        message=said_in(payload),
        tool_call_id=call,
        response_schema=question.response_schema or _schema(kind, payload),
        expires_at=question.expires_at.isoformat() if question.expires_at else None,
        metadata={"kind": kind, "payload": payload},
    )


def _call_asked_about(payload: Any, calls: Sequence[Mapping[str, Any]]) -> str | None:
    """The tool call that an approval is about, where there is exactly one like it."""
    action = only_action(payload)
    found = [
        str(call["id"])
        for call in calls
        if action and (call["name"], call["args"]) == (action["name"], action.get("args"))
    ]
    return found[0] if len(found) == 1 else None


def _schema(kind: str, payload: Any) -> dict[str, Any] | None:
    """What a kind of question takes, where the graph has not said it."""
    if takes_text(kind, payload):
        return {"type": "string"}
    if kind not in ("approve", "continue"):
        return None
    properties: dict[str, Any] = {"approved": {"type": "boolean"}, "message": {"type": "string"}}
    if kind == "approve" and may_edit(payload):
        properties["editedArgs"] = {"type": "object"}
    return {"type": "object", "properties": properties, "required": ["approved"]}
