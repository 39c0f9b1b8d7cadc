"""Whether a run is over, and how: from what is recorded of its thread.

A run of AG-UI lasts from its message's acceptance until the thread has settled for it: the
turn is done, a question waits for a person, or it can't go on by itself. What the events say
only makes us look; what is committed decides.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ag_ui.core import Interrupt

from ..status import Question, ThreadStatus

_FAILED = {
    "failed": "The thread's work has failed.",
    "in_doubt": "Whether a call to the outside has happened is not known; a person has to say.",
    "incompatible": "No worker runs a version of the graph that this thread can go on with.",
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
    thread: ThreadStatus, ours: Collection[str] | None, refused: Mapping[str, str | None]
) -> End | None:
    """The end of a run that is about the messages `ours`, or about all mail (None); None while
    it goes on. thread: with all mail that is not done. refused: of messages that were given up
    unread, why.
    """
    if thread.status in _FAILED:
        said = thread.last_error or _FAILED[thread.status]
        return End("error", code=thread.status, message=said)
    rows = [m for m in thread.messages if m.status in _OPEN]
    if any(ours is None or row.message_id in ours for row in rows):
        return None
    if thread.status == "waiting" and thread.questions:
        return End("interrupt", tuple(interrupt_of(q) for q in thread.questions))
    for name in ours or ():
        if name in refused:
            said = refused[name] or "The message was given up before it was worked on."
            return End("error", code="refused", message=said)
    if ours is None and thread.status == "running":
        return None
    return End("cancelled" if thread.status == "cancelled" else "success")


def interrupt_of(question: Question) -> Interrupt:
    """The question as AG-UI asks it. metadata: ``{"kind", "payload"}``."""
    return Interrupt(
        id=question.question_id,
        reason=question.kind,
        message=_message(question.payload),
        response_schema=question.response_schema,
        expires_at=question.expires_at.isoformat() if question.expires_at else None,
        metadata={"kind": question.kind, "payload": question.payload},
    )


def _message(payload: Any) -> str | None:
    """The text that a person is shown, where the payload has one."""
    if isinstance(payload, str):
        return payload
    if not isinstance(payload, Mapping):
        return None
    for name in ("message", "question", "description"):
        if isinstance(payload.get(name), str):
            return str(payload[name])
    requests = payload.get("action_requests")
    told = [
        str(request["description"])
        for request in (requests if isinstance(requests, list) else ())
        if isinstance(request, Mapping) and isinstance(request.get("description"), str)
    ]
    return "\n\n".join(told) or None
