"""How a WebSocket begins: whose it is, and which session it goes on with."""

import asyncio
from dataclasses import dataclass
from typing import Any

from ..errors import ProducerError
from ..live.ids import EventId
from ..refusals import unknown_graph
from . import keys
from .absences import is_fresh, left_alone
from .auth import Principal, Role, authenticate
from .owners import is_guest
from .problems import Problem
from .session_book import Session, SessionBook
from .ws_acts import refused
from .ws_line import Line
from .ws_messages import Auth, Init, Refused, parsed

#: Seconds for the first frame, and for a person to sign in anew.
INIT_WITHIN, SIGN_IN_WITHIN = 5.0, 300.0


class End(Exception):
    """The connection is over: the code and the reason that the page is told."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class Opened:
    """resumed: the session was there before. after: what the page has seen last, if that is
    to be gone on from. away: whether the absence was longer than the reconnect window. guest: the
    session is not known to be the caller's."""

    session: Session
    principal: Principal
    token: str | None
    resumed: bool
    after: EventId | None
    away: bool
    guest: bool


async def opened(line: Line, state: Any) -> Opened:
    """The session of who has come. Raises End after having said why, Gone, TooSlow."""
    try:
        frame = await _first(line)
        principal = await authenticate(state, frame.token)
        state.limits.require(principal)
        seen = None if frame.last_seq is None else EventId.parse(frame.last_seq)
        book = SessionBook(state.database)
        session = await _session(state, book, principal, frame)
        resumed = frame.session_id is not None
        away = session.absent > state.settings.reconnect_window
        token, asked = frame.token, resumed and await _is_asked(state, session, principal)
        if asked:
            principal, token = await _fresh(line, state, session, principal, frame.token)
        guest = is_guest(state, principal, session.user_id)
        # Also where the sweep may close it before it hears that somebody is there.
        late = session.absent > state.settings.session_timeout / 2
        if (asked or late or session.closed_at) and (session.open_to_guests or not guest):
            await book.reopen(session)
    except (Refused, ProducerError, Problem) as exc:
        said = told(exc)
        await line.send(said.as_frame())
        raise End(1013 if said.retry else 1008, said.code) from None
    return Opened(session, principal, token, resumed, None if away else seen, away, guest)


def told(exc: Refused | ProducerError | Problem) -> Refused:
    """What a page is told of it."""
    if isinstance(exc, Refused):
        return exc
    if isinstance(exc, ProducerError):
        return refused(exc)
    if exc.status == 429:
        after = int(exc.headers.get("Retry-After", 1))
        return Refused("rate_limited", exc.detail, retry=True, retry_after=after)
    return Refused(exc.code, exc.detail, retry=exc.status >= 500)


async def _first(line: Line) -> Init:
    try:
        async with asyncio.timeout(INIT_WITHIN):
            frame = parsed(await line.receive())
    except TimeoutError:
        raise Refused("no_init", f"No init has come within {INIT_WITHIN:g} s.") from None
    if not isinstance(frame, Init):
        raise Refused("no_init", "The first frame is an init.")
    return frame


async def _session(state: Any, book: SessionBook, principal: Principal, frame: Init) -> Session:
    if frame.session_id is not None:
        found = await book.find(principal, frame.session_id)
        if frame.graph not in (None, found.graph):
            raise Refused("invalid_message", f"The session is one of the graph {found.graph}.")
        return found
    if frame.graph is None:
        raise Refused("invalid_message", "Give a graph, or the session_id of one to go on with.")
    if principal.user is None and not principal.may(Role.producer):
        raise Refused("forbidden", f"{principal.name} may open no session.")
    made = await book.open(principal, frame.graph)
    if made is None:
        fleet = state.fleets.of(principal.tenant)
        raise unknown_graph(frame.graph, await state.fleets.call(fleet.graphs))
    return made


async def _is_asked(state: Any, session: Session, principal: Principal) -> bool:
    """Whether it takes a fresh token to go on with the session."""
    if not session.sensitive:
        return False
    if is_guest(state, principal, session.user_id) and not session.open_to_guests:
        return False
    return await left_alone(state, session.absent, session.last_seen_at)


async def _fresh(
    line: Line, state: Any, session: Session, principal: Principal, token: str | None
) -> tuple[Principal, str | None]:
    """A principal who has signed in since somebody was here last. Raises Problem, 429."""
    shown = False
    try:
        async with asyncio.timeout(SIGN_IN_WITHIN):
            while not (shown or is_fresh(principal, session.last_seen_at)):
                needed = Refused(
                    "fresh_token_needed",
                    "This session was left alone: sign in anew to go on with it.",
                    retry=True,
                )
                await line.send(needed.as_frame())
                frame = parsed(await line.receive())
                state.limits.require(principal)
                if isinstance(frame, Auth):
                    principal, token = await authenticate(state, frame.token), frame.token
                    # Given again when it was asked for: all that a key can do.
                    shown = keys.is_key(frame.token)
    except TimeoutError:
        raise Refused("no_fresh_token", "No fresh token has come.") from None
    if not session.visible_to(principal):
        raise Refused("unknown_session", "There is no such session.")
    return principal, token
