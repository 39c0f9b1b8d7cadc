"""Bodies of the REST doors, and the problems that they may answer with."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..status import ThreadRow, ThreadStatus


class ProblemBody(BaseModel):
    """RFC 9457. `code` names what happened, for programs; further members belong to it."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:problem-type:fleet:unknown_thread",
                    "title": "Unknown thread",
                    "status": 404,
                    "detail": "There is no thread refund:A1001.",
                    "code": "unknown_thread",
                    "hint": "Submit it first, or look for it with `fleet threads`.",
                    "thread_id": "refund:A1001",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str | None = None


class Send(BaseModel):
    """A message to a thread."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"input": {"user_id": "u_42"}},
                {
                    "input": {"messages": [{"role": "user", "content": "Hello", "id": "m-1"}]},
                    "on_existing": "send",
                },
                {"input": {"amount": 12}, "kind": "input"},
            ]
        },
    )

    input: dict[str, Any] = Field(description="The graph's input.")
    kind: Literal["start", "input"] = Field(
        "start", description="`start` begins the thread; `input` is for one that exists."
    )
    on_existing: Literal["use_existing", "send", "reject", "restart"] = Field(
        "use_existing",
        description="Of a start whose thread exists: give that one's receipt and do nothing; send "
        "it as input, as the messages of a chat are; refuse it; or begin anew.",
    )
    force: bool = Field(
        False,
        strict=True,
        description="Restart although an effect is in doubt or a node was done by hand, which may "
        "then be done twice. It takes the role operator.",
    )
    context: dict[str, Any] | None = Field(None, description="LangGraph's context.")
    config: dict[str, Any] | None = Field(None, description="LangGraph's config.")
    priority: int = Field(0, ge=-100, le=100, strict=True, description="Higher is sooner.")


class GivenAnswer(BaseModel):
    """The answer to a question."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"value": "approved"},
                {"value": {"decisions": [{"type": "reject", "message": "too much"}]}},
                {"value": 3, "answered_by": "ann"},
            ]
        },
    )

    value: Any = Field(
        description="What the question takes; an approval takes `approved`, `rejected` or "
        '`{"decisions": […]}`.'
    )
    answered_by: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        None,
        description="Who answered, where a service asks for its people; a user answers as "
        "themselves.",
    )


class AskedQuestion(BaseModel):
    """A question of a thread, and what became of it."""

    question_id: str
    kind: str
    status: str
    payload: Any
    response_schema: dict[str, Any] | None = None
    asked_at: datetime
    expires_at: datetime | None = None
    answer: Any = None
    answered_by: str | None = None
    answered_at: datetime | None = None


class Questions(BaseModel):
    thread_id: str
    questions: list[AskedQuestion]


class ThreadInFull(ThreadStatus):
    """`state`: the values of the newest checkpoint; `result`: what an `@entrypoint` returned."""

    model_config = ConfigDict(frozen=True, extra="allow")

    state: dict[str, Any] | None = None


class Threads(BaseModel):
    threads: list[ThreadRow]


class History(BaseModel):
    """Checkpoints, oldest first. `before`: where the page before this one ends; null at the
    beginning. `notes`: why values are left out, if some are."""

    thread_id: str
    checkpoints: list[dict[str, Any]]
    before: str | None
    notes: list[str]


class ChatMessages(BaseModel):
    """Messages of a chat, oldest first. `earlier`: how many came before; `before`: what names
    the page before this one, null at the beginning."""

    thread_id: str
    messages: list[dict[str, Any]]
    earlier: int
    before: str | None


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses` of a route: what any may answer with, and these."""
    texts = {
        400: "It can't be read, or holds a name or value that is none.",
        401: "No token, none that is valid, or one too old for a sensitive session.",
        403: "The caller's roles, or the page that it comes from, may not do this.",
        404: "There is no such thread, graph or question for this caller.",
        409: "It does not fit what the thread is doing.",
        410: "The question has expired.",
        413: "The body is too large.",
        422: "It does not have the shape that is asked for; or the key was used for another "
        "payload.",
        429: "Too many requests; `Retry-After` says when to come back.",
        503: "Postgres can't be reached; `code` says whether something may have been accepted.",
    }
    chosen = sorted({400, 401, 403, 404, 422, 429, 503, *statuses})
    return {
        status: {
            "description": texts[status],
            "content": {"application/problem+json": {"schema": _REF}},
        }
        for status in chosen
    }


_REF = {"$ref": "#/components/schemas/ProblemBody"}
