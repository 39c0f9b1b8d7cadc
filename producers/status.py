"""What can be seen of a thread, and the receipt of a message."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .results import plain_result

ThreadState = Literal[
    "idle", "running", "waiting", "in_doubt", "failed", "incompatible", "done", "cancelled"
]
#: Where a thread stays until somebody does something.
SETTLED: frozenset[str] = frozenset(
    {"done", "failed", "waiting", "cancelled", "in_doubt", "incompatible"}
)


def held(queue: str | None) -> bool:
    """Whether mail of this queue is that of a paused graph: nobody is to be woken for it."""
    return queue is not None and queue.startswith("paused:")


def waits(found: Mapping[str, Any]) -> bool:
    """Whether a message, by what fleet.accept said of it, is one to wake a worker for."""
    return found["message_status"] == "pending" and not held(found["queue"])


class _Seen(BaseModel):
    # A newer server may say more than this version knows.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Receipt(_Seen):
    """The message is committed. `published`: a worker has been woken for it (or enough
    wake-ups wait already); if not, it starts when the broker is back, or after the
    commit of the caller's own transaction, unless it was sent before and has had its turn.
    `paused`: its graph is, and it waits for that.
    """

    thread_id: str
    message_id: str
    seq: int
    outcome: Literal["accepted", "duplicate", "existing"]
    published: bool = False
    paused: bool = False


class Question(_Seen):
    question_id: str
    kind: str
    payload: Any
    response_schema: dict[str, Any] | None = None
    asked_at: datetime
    expires_at: datetime | None = None


class MessageRow(_Seen):
    seq: int
    message_id: str
    kind: str
    status: str
    crashes: int
    failures: int
    generation: int = 1
    error: str | None = None
    accepted_at: datetime
    available_at: datetime
    done_at: datetime | None = None


class EffectRow(_Seen):
    """`result` is what the effect gave, as JSON holds it: an amount or a time is text, a model
    the object that it was made of. None while there is none, and where it can't be read
    without its own code; `stored` is (type, bytes) as LangGraph's serializer wrote it."""

    request_id: str
    name: str
    state: str
    policy: str
    attempts: int
    result: Any = None
    error: dict[str, Any] | None = None
    effect_key: str | None = None
    generation: int
    seq: int
    started_at: datetime
    finished_at: datetime | None = None
    stored: tuple[str, bytes] | None = Field(None, exclude=True, repr=False)


class NotificationRow(_Seen):
    """A question that was sent to a channel since nobody looked at it (round 0) or since its
    deadline said so (1, 2, …). `notification_id`: by which a receiver knows a repetition. `code`:
    of the last answer. `next_at`: of the next attempt."""

    notification_id: str
    thread_id: str
    question_id: str
    channel: str
    round: int
    status: Literal["waiting", "sent", "gone", "given_up", "dropped"]
    attempts: int
    created_at: datetime
    sent_at: datetime | None = None
    next_at: datetime | None = None
    code: int | None = None
    error: str | None = None


class ThreadRow(_Seen):
    """A line of a list of threads. Times are the database's."""

    thread_id: str
    tenant: str
    graph: str
    key: str
    generation: int
    status: ThreadState
    last_error: str | None = None
    created_at: datetime
    updated_at: datetime


class ThreadStatus(ThreadRow):
    """`question` is the oldest open one, `questions` are all that are open."""

    epoch: int
    owner: str | None = None
    cancel_requested: bool = False
    question: Question | None = None
    questions: list[Question] = []
    messages: list[MessageRow] = []
    effects: list[EffectRow] = []


def thread_status(found: dict[str, Any]) -> ThreadStatus:
    """From the row of the query `status`."""
    questions = found["questions"]
    return ThreadStatus(
        **{
            **found,
            "question": questions[0] if questions else None,
            "effects": [_effect(effect) for effect in found["effects"]],
        }
    )


def _effect(found: dict[str, Any]) -> dict[str, Any]:
    kind, text = found["result_type"], found["result_base64"]
    if kind is None or text is None:
        return found
    data = base64.b64decode(text)
    return {**found, "result": plain_result(kind, data), "stored": (kind, data)}
