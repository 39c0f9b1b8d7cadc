"""Sessions of chat pages over REST: to open one, to list them, to look at one."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from ..refusals import unknown_graph
from .auth import Caller, Role, require_role
from .problems import Problem
from .session_book import Session, SessionBook, UnknownSession
from .strict_json import StrictRoute

router = APIRouter(tags=["sessions"], route_class=StrictRoute)


class NewSession(BaseModel):
    graph: str = Field(max_length=64, examples=["booking"])


@router.post("/sessions", status_code=201)
async def open_session(body: NewSession, caller: Caller, request: Request) -> Session:
    """Opens a session of the caller's; say something in it over `/ws`."""
    if caller.user is None:
        require_role(caller, Role.producer)
    state = request.app.state
    session = await SessionBook(state.database).open(caller, body.graph)
    if session is None:
        known = await state.fleets.call(state.fleets.of(caller.tenant).graphs)
        raise unknown_graph(body.graph, known)
    return session


@router.get("/sessions")
async def sessions(
    caller: Caller, request: Request, limit: Annotated[int, Query(ge=1, le=500)] = 100
) -> list[Session]:
    """The caller's own, or for a role the tenant's; newest first."""
    return await SessionBook(request.app.state.database).listed(caller, limit)


@router.get("/sessions/{session_id}")
async def session(session_id: str, caller: Caller, request: Request) -> Session:
    """One of those that the caller may see."""
    try:
        return await SessionBook(request.app.state.database).find(caller, session_id)
    except UnknownSession as exc:
        raise Problem(404, exc.code, "Unknown session", exc.message) from None
