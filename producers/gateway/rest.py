"""REST for services: hand over messages, look at threads, answer, cancel."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import JSONResponse, Response

from ..client import Fleet
from ..errors import MessageConflict, ProducerError, ThreadExists
from ..operated import Cancellation
from ..past.chat import page
from ..past.checkpoints import Place, history
from ..past.state import state_of
from ..payloads import canonical_hash, checked
from ..status import Receipt
from .admission import allow, answered_by, message_name, readable, require_operator, thread_of
from .auth import Caller, Role
from .paths import GraphName, Key, QuestionId, thread_path
from .problems import Problem
from .rest_models import (
    AskedQuestion,
    ChatMessages,
    GivenAnswer,
    History,
    Questions,
    Send,
    ThreadInFull,
    Threads,
    problems,
)
from .strict_json import StrictRoute

router = APIRouter(tags=["threads"], route_class=StrictRoute)

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Names the message: sent again, it counts once.",
        examples=["order-A1001"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": Receipt, "description": "Accepted: it is committed, now or before."},
    200: {"model": Receipt, "description": "The thread was there already; nothing was accepted."},
}


@router.post(
    "/threads/{graph}/{key}/messages",
    response_model=None,
    status_code=202,
    responses=_ACCEPTED | problems(409, 413),
)
async def send(
    graph: GraphName,
    key: Key,
    body: Send,
    request: Request,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Start the thread of a business id, or send it more input.

    The Idempotency-Key is the message's id: the same one with the same body gives the same
    receipt, however often it is sent.
    """
    state = request.app.state
    thread = thread_of(caller, graph, key)
    message_id = message_name(idempotency_key, required=body.kind == "start")
    await allow(state, caller, thread, Role.producer)
    if body.force:
        require_operator(caller)
    payload_hash = canonical_hash(checked(body.model_dump(), "body"))
    with state.in_flight.held(thread, message_id, payload_hash):
        fleet = state.fleets.of(caller.tenant)
        receipt = await state.fleets.call(_send, fleet, graph, key, thread, body, message_id)
    status = 200 if receipt.outcome == "existing" else 202
    place = {"Location": thread_path(graph, key)}
    return JSONResponse(receipt.model_dump(mode="json"), status, place)


def _send(fleet: Fleet, graph: str, key: str, thread: str, body: Send, message_id: str) -> Receipt:
    run: dict[str, Any] = {"context": body.context, "config": body.config}
    if body.kind == "input":
        return fleet.send(thread, body.input, message_id=message_id, **run)
    start = {**run, "message_id": message_id, "priority": body.priority, "force": body.force}
    if body.on_existing != "send":
        return fleet.submit(graph, key, body.input, on_existing=body.on_existing, **start)
    try:
        return fleet.submit(graph, key, body.input, on_existing="reject", **start)
    except ThreadExists:
        return fleet.send(thread, body.input, message_id=message_id, **run)
    except MessageConflict as conflict:
        # It may have been accepted as input before.
        try:
            return fleet.send(thread, body.input, message_id=message_id, **run)
        except ProducerError:
            raise conflict from None


@router.get("/threads/{graph}/{key}", response_model_exclude_unset=True, responses=problems())
async def status(
    graph: GraphName,
    key: Key,
    request: Request,
    caller: Caller,
    state: Annotated[bool, Query(description="With the graph's state.")] = True,
) -> ThreadInFull:
    """All that is recorded of a thread, and its state."""
    doors = request.app.state
    thread = await readable(doors, caller, graph, key)
    found = await doors.fleets.call(doors.fleets.of(caller.tenant).status, thread)
    told = found.model_dump()
    if state:
        told |= await doors.database.call(lambda conn: state_of(conn, found))
    return ThreadInFull.model_validate(told)


@router.get("/threads", responses=problems())
async def threads(
    request: Request,
    caller: Caller,
    status: Annotated[
        Literal[
            "idle", "running", "waiting", "in_doubt", "failed", "incompatible", "done", "cancelled"
        ]
        | None,
        Query(description="Only those that are so."),
    ] = None,
    graph: Annotated[str | None, Query(description="Only those of this graph.")] = None,
    limit: Limit = 100,
) -> Threads:
    """The threads changed last, newest first. Users find theirs among their sessions."""
    if not caller.may(Role.viewer):
        raise Problem(
            403,
            "forbidden",
            "Forbidden",
            "A list of threads takes a role.",
            "GET /sessions lists a user's own.",
        )
    doors = request.app.state
    fleet = doors.fleets.of(caller.tenant)
    found = await doors.fleets.call(fleet.threads, status, graph, limit, tenant=caller.tenant)
    return Threads(threads=found)


@router.get("/threads/{graph}/{key}/history", responses=problems())
async def past(
    graph: GraphName,
    key: Key,
    request: Request,
    caller: Caller,
    generation: Annotated[int | None, Query(ge=1, description="An earlier one.")] = None,
    before: Annotated[str | None, Query(description="A checkpoint's id.", max_length=255)] = None,
    limit: Limit = 100,
) -> History:
    """What each step of a thread did: its checkpoints, the newest ones first page by page."""
    doors = request.app.state
    thread = await readable(doors, caller, graph, key)
    notes: list[str] = []
    place = Place(doors.fleets.of(caller.tenant), doors.settings.require_postgres(), notes.append)
    found = await doors.fleets.call(
        history, place, thread, generation, before=before or None, limit=limit
    )
    return History(
        thread_id=thread,
        checkpoints=found,
        before=found[0]["checkpoint_id"] if len(found) == limit else None,
        notes=notes,
    )


@router.get("/threads/{graph}/{key}/messages", responses=problems())
async def messages(
    graph: GraphName,
    key: Key,
    request: Request,
    caller: Caller,
    before: Annotated[str | None, Query(description="A message's id.", max_length=255)] = None,
    limit: Limit = 50,
) -> ChatMessages:
    """The messages of a chat, the newest page first: those before the one that is named."""
    doors = request.app.state
    thread = await readable(doors, caller, graph, key)
    found = await doors.fleets.call(doors.fleets.of(caller.tenant).status, thread)
    named = before or None
    got = await doors.database.call(lambda conn: page(conn, found, named, limit))
    first = got.messages[0].get("message_id") if got.messages and got.earlier else None
    return ChatMessages(thread_id=thread, messages=got.messages, earlier=got.earlier, before=first)


@router.get("/threads/{graph}/{key}/questions", responses=problems())
async def questions(
    graph: GraphName,
    key: Key,
    request: Request,
    caller: Caller,
    status: Annotated[
        Literal["open", "answered", "expired", "superseded"] | None,
        Query(description="Only those that are so."),
    ] = None,
) -> Questions:
    """What the thread has asked, oldest first, and what became of it."""
    doors = request.app.state
    thread = await readable(doors, caller, graph, key)
    found = await doors.fleets.call(doors.fleets.of(caller.tenant).questions, thread, status)
    return Questions(
        thread_id=thread, questions=[AskedQuestion.model_validate(row) for row in found]
    )


@router.post(
    "/threads/{graph}/{key}/questions/{question}/answer",
    status_code=202,
    responses=problems(409, 410, 413),
)
async def answer(
    graph: GraphName,
    key: Key,
    question: QuestionId,
    body: GivenAnswer,
    request: Request,
    caller: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Receipt:
    """Answer a question. The first answer counts; later ones are told of it."""
    doors = request.app.state
    thread = thread_of(caller, graph, key)
    message_id = message_name(idempotency_key, required=False)
    await allow(doors, caller, thread, Role.approver)
    receipt: Receipt = await doors.fleets.call(
        doors.fleets.of(caller.tenant).answer,
        thread,
        question,
        body.value,
        message_id=message_id,
        answered_by=answered_by(caller, body.answered_by),
    )
    return receipt


@router.post("/threads/{graph}/{key}/cancel", responses=problems(409))
async def cancel(graph: GraphName, key: Key, request: Request, caller: Caller) -> Cancellation:
    """Call off all that is open of the thread, at once or at its turn's next step."""
    doors = request.app.state
    thread = thread_of(caller, graph, key)
    await allow(doors, caller, thread, Role.producer)
    done: Cancellation = await doors.fleets.call(doors.fleets.of(caller.tenant).cancel, thread)
    return done
