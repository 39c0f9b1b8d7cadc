"""AG-UI: runs, their events, questions and cancellation, for AG-UI 1.0 clients.

`POST /agent/run` takes a RunAgentInput and streams the run; `GET /agent/events` streams a
thread from any event on. See docs/agui.md.
"""

import contextlib
from typing import Annotated, Any, Literal

from ag_ui.core import RunAgentInput
from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, Field

from ..answers import Verdict
from ..client import Fleet
from ..errors import (
    AnswerRefused,
    FleetUnavailable,
    InvalidInput,
    InvalidPayload,
    MessageConflict,
    QuestionOpen,
)
from ..live.ids import EventId
from ..live.snapshot import Snapshot
from ..operated import Cancellation
from ..status import Question, Receipt, ThreadState
from .admission import allow, answered_by
from .agui_events import Translator
from .agui_input import Door, given, place
from .agui_messages import agui_message
from .agui_state import next_nodes
from .agui_stream import EventStream, Listener, refusal
from .agui_watch import Entry
from .auth import Caller, Principal, Role
from .owners import Access
from .rest_models import problems
from .strict_json import StrictRoute

router = APIRouter(prefix="/agent", tags=["AG-UI"], route_class=StrictRoute)

#: What AG-UI tells as a RUN_ERROR; nothing was accepted.
_REFUSALS = (AnswerRefused, QuestionOpen, MessageConflict, InvalidInput, InvalidPayload)

Thread = Annotated[str, Query(description="graph:key", examples=["booking:7f3a"])]


@router.post("/run", response_class=EventStream, status_code=200)
async def run(
    asked: RunAgentInput,
    caller: Caller,
    request: Request,
    graph: Annotated[str | None, Query(description="Of a threadId that is the key alone")] = None,
) -> EventStream:
    """Hand a message or answers over and stream the run; with neither, join what is under way.

    Closing the response changes nothing for the run.
    """
    state = request.app.state
    wanted = given(asked)
    thread = place(caller.tenant, asked.thread_id, graph or wanted.graph)
    access = await allow(state, caller, thread, Role.viewer)
    door = Door(state.fleets.of(caller.tenant), state.database, answered_by(caller, None))
    says = await state.fleets.call(door.says, thread, wanted)
    if wanted.resume:
        access.require(Role.approver)
    if says:
        access.require(Role.producer)
    translator = Translator(asked.thread_id, asked.messages)
    listener = Listener(state, _entry(request, access), thread, translator)
    await listener.open()
    try:
        handed = await state.fleets.call(door.hand_over, thread, wanted, says=says)
    except _REFUSALS as refused:
        await listener.close()
        return EventStream(refusal(translator, asked.run_id, refused))
    except BaseException:
        await listener.close()
        raise
    listener.expect(handed.ours, fresh=handed.fresh)
    first = translator.begin(asked.run_id, wanted.message)
    return EventStream(listener.frames(first=first), listener)


@router.get("/events", response_class=EventStream, status_code=200)
async def events(
    thread_id: Thread,
    caller: Caller,
    request: Request,
    from_event_id: Annotated[str | None, Query(examples=["41-3"])] = None,
    last_event_id: Annotated[str | None, Header()] = None,
) -> EventStream:
    """The thread's events from there on, for as long as the caller stays: a run of AG-UI for
    each time it is at work. Without an id, all there is comes first."""
    state = request.app.state
    thread = place(caller.tenant, thread_id, None)
    access = await allow(state, caller, thread, Role.viewer)
    given_id = last_event_id or from_event_id
    after = EventId.parse(given_id) if given_id else None
    await state.fleets.call(_fleet(request, caller).status, thread)  # raises UnknownThread
    translator = Translator(thread_id, None)
    entry = _entry(request, access)
    listener = Listener(state, entry, thread, translator, endless=True)
    return EventStream(listener.frames(after), listener)


class State(BaseModel):
    """A thread as it stands. next: the nodes that come next; values: its state without the
    messages; last_event_id: where `/agent/events` goes on from."""

    thread_id: str
    status: ThreadState
    questions: list[Question]
    next: list[str]
    messages: list[dict[str, Any]]
    values: dict[str, Any]
    last_event_id: str
    last_error: str | None


@router.get("/state")
async def state(thread_id: Thread, caller: Caller, request: Request) -> State:
    """The thread as it stands: open questions, what comes next, messages and values."""
    app = request.app.state
    thread = place(caller.tenant, thread_id, None)
    await allow(app, caller, thread, Role.viewer)
    async with contextlib.aclosing(app.hub.watch(thread)) as items:
        found = await anext(items, None)
    if not isinstance(found, Snapshot):
        raise FleetUnavailable("The gateway is closing.", "Try again.")
    following = await app.fleets.call(app.database.run_now, next_nodes(found.thread))
    messages = [agui_message(m).model_dump(by_alias=True) for m in found.messages]
    return State(
        thread_id=thread_id,
        status=found.thread.status,
        questions=found.thread.questions,
        next=following,
        messages=messages,
        values=found.values,
        last_event_id=str(found.head),
        last_error=found.thread.last_error,
    )


class Resume(BaseModel):
    """action: `resolve` answers with the value; `approve` and `reject` decide an approval."""

    thread_id: str
    question_id: str
    action: Literal["resolve", "approve", "reject"] = "resolve"
    value: Any = None
    message_id: str | None = Field(None, description="The same when it is sent again")


@router.post("/resume", status_code=202, responses=problems(409, 410))
async def resume(body: Resume, caller: Caller, request: Request) -> Receipt:
    """Answer one question, without a stream."""
    app = request.app.state
    thread = place(caller.tenant, body.thread_id, None)
    await allow(app, caller, thread, Role.viewer, Role.approver)
    note = body.value if isinstance(body.value, str) else None
    value = body.value if body.action == "resolve" else Verdict(body.action == "approve", note)
    receipt: Receipt = await app.fleets.call(
        _fleet(request, caller).answer,
        thread,
        body.question_id,
        value,
        message_id=body.message_id,
        answered_by=answered_by(caller, None),
    )
    return receipt


class Cancel(BaseModel):
    thread_id: str


@router.post("/cancel", status_code=202, responses=problems(409))
async def cancel(body: Cancel, caller: Caller, request: Request) -> Cancellation:
    """Call off what is open of the thread; a call to the outside is finished first."""
    app = request.app.state
    thread = place(caller.tenant, body.thread_id, None)
    await allow(app, caller, thread, Role.viewer, Role.producer)
    done: Cancellation = await app.fleets.call(_fleet(request, caller).cancel, thread)
    return done


def _fleet(request: Request, caller: Principal) -> Fleet:
    fleet: Fleet = request.app.state.fleets.of(caller.tenant)
    return fleet


def _entry(request: Request, access: Access) -> Entry:
    _, _, token = request.headers.get("authorization", "").partition(" ")
    return Entry(request.app.state, token.strip() or None, access)
