"""An open WebSocket: what happens goes out, what the page does comes in.

It only watches and submits. Whatever ends it, the turn goes on.
"""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
from limits import RateLimitItemPerSecond

from ..errors import ProducerError
from ..live.events import Event, Lagging
from ..live.ids import FIRST, EventId
from ..live.snapshot import Snapshot
from .auth import Principal, Unauthorized, authenticate, expired
from .problems import Problem
from .ws_acts import Acts
from .ws_frames import Frames
from .ws_line import Line
from .ws_messages import Auth, Cancel, Frame, Init, Ping, Refused, Reply, Say, name_in_text, parsed
from .ws_opening import End, Opened, told

#: Frames of one session through this gateway: so many in so many seconds.
_LIMIT = RateLimitItemPerSecond(30, 10)
#: Seconds after which a token is looked at again: it may have been revoked.
_LOOK_AGAIN = 30.0


class Connection:
    """`run` raises End, Gone or TooSlow at its end."""

    def __init__(self, state: Any, line: Line, opened: Opened) -> None:
        self._state = state
        self._line = line
        self._opened = opened
        self._session = opened.session
        self._principal: Principal = opened.principal
        self._token = opened.token
        self._frames = Frames()
        self._welcomed = asyncio.Event()
        self._acts = Acts(state.fleets, state.database, opened.session)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tell())
                group.create_task(self._hear())
                group.create_task(self._guard())
        except BaseExceptionGroup as several:
            # The first one has cancelled the others.
            raise several.exceptions[0] from None

    # Out

    async def _tell(self) -> None:
        try:
            await self._watch()
        except ProducerError as exc:
            said = told(exc)
            await self._line.send(said.as_frame())
            raise End(1013, "try_again") from exc

    async def _watch(self) -> None:
        session, thread = self._session, self._session.thread_id
        after = self._opened.after
        head = await self._head(after or FIRST)
        await self._line.send(self._welcome(head))
        self._welcomed.set()
        # Nothing was said yet, so there is nothing to rebuild.
        new = after is None and session.thread_status is None
        missed: list[Event] | None = None
        if after is not None and head is not None and head > after:
            missed = []
        async with aclosing(self._state.hub.watch(thread, after, wait=True, new=new)) as items:
            async for item in items:
                if isinstance(item, Lagging):
                    raise End(1013, "try_again")
                if isinstance(item, Snapshot):
                    missed = None
                    await self._rebuild(item)
                elif missed is None:
                    await self._send(self._frames.of(await self._whole(item)))
                else:
                    missed.append(await self._whole(item))
                    if head is not None and item.id >= head:
                        await self._send(self._frames.missed(missed, str(item.id)))
                        missed = None
        raise End(1013, "try_again")

    async def _head(self, seen: EventId) -> EventId | None:
        """The newest event by now. A page knows the questions that it had been shown before."""
        row = await self._state.database.row(
            "session_head",
            reads=True,
            thread_id=self._session.thread_id,
            epoch=seen.epoch,
            n=seen.n,
        )
        self._frames.asked.update(row["shown"])
        return None if row["head"] is None else EventId.parse(row["head"])

    async def _whole(self, event: Event) -> Event:
        """With what a question asks: of some graphs the broker is told only that it does."""
        if event.type != "question" or "payload" in event.data:
            return event
        row = await self._state.database.row(
            "question_asked",
            reads=True,
            thread_id=self._session.thread_id,
            question_id=event.data["question_id"],
        )
        return replace(event, data={**event.data, **(row or {})})

    def _welcome(self, head: EventId | None) -> dict[str, Any]:
        session, resumed = self._session, self._opened.resumed
        return {
            "type": "welcome",
            "session_id": session.session_id,
            "thread_id": session.thread_id,
            "graph": session.graph,
            "message": "Welcome back." if resumed else "Welcome.",
            "resumed": resumed,
            "active": session.busy,
            "state": "active" if session.state == "timed_out" else session.state,
            "last_seq": None if head is None else str(head),
        }

    async def _rebuild(self, found: Snapshot) -> None:
        away = self._opened.away and found.reason == "first"
        await self._send({"type": "recovery_start", "reason": "away" if away else found.reason})
        await self._send(self._frames.snapshot(found))
        await self._send({"type": "recovery_complete", "last_seq": str(found.head)})

    async def _send(self, frame: dict[str, Any]) -> None:
        """Of the thread: nothing to a token that has expired."""
        if expired(self._principal):
            await self._token_over()
        await self._line.send(frame)

    # In

    async def _hear(self) -> None:
        # What came with the init is judged by what the page had been shown, known only by then.
        await self._welcomed.wait()
        while True:
            text = await self._line.receive()
            try:
                await self._within_limit(text)
                reply = await self._act(parsed(text))
            except Refused as exc:
                reply = exc.as_frame()
            except (ProducerError, Problem) as exc:
                reply = told(exc).as_frame()
            await self._line.send(reply)

    async def _act(self, frame: Frame) -> dict[str, Any]:
        if isinstance(frame, Ping):
            return {"type": "pong", "timestamp": datetime.now(UTC).isoformat()}
        if isinstance(frame, Auth):
            return await self._renew(frame)
        if isinstance(frame, Init):
            raise Refused("invalid_message", "The session is open: init comes first and once.")
        principal = await self._known()
        if isinstance(frame, Say):
            return await self._acts.say(frame, principal, self._frames.asked)
        if isinstance(frame, Reply):
            return await self._acts.reply(frame, principal)
        assert isinstance(frame, Cancel)
        return await self._acts.cancel(frame, principal)

    async def _within_limit(self, text: str | None) -> None:
        wait = self._state.limits.over(_LIMIT, "ws", self._session.session_id)
        if wait is not None:
            # Not read meanwhile: who floods waits in its own buffers.
            await asyncio.sleep(min(wait, 1.0))
            raise Refused(
                "rate_limited",
                f"More than {_LIMIT.amount} frames in {_LIMIT.multiples} s.",
                retry=True,
                retry_after=round(wait, 1),
                **name_in_text(text),
            )

    async def _renew(self, frame: Auth) -> dict[str, Any]:
        """Go on under a newer token, without anything being interrupted."""
        try:
            found = await authenticate(self._state, frame.token)
        except Unauthorized as exc:
            raise Refused(exc.code, exc.detail) from None
        old = self._principal
        same = (found.tenant, found.user) == (old.tenant, old.user)
        if not same or not self._session.visible_to(found):
            raise Refused("forbidden", "The token is another user's.")
        self._principal, self._token = found, frame.token
        until = found.expires_at
        return {"type": "authenticated", "expires_at": until and until.isoformat()}

    async def _known(self) -> Principal:
        """Who acts, by a token that is still good."""
        try:
            self._principal = await authenticate(self._state, self._token)
        except Unauthorized:
            await self._token_over()
        return self._principal

    # The end

    async def _guard(self) -> None:
        """Ends with the gateway, and with the token."""
        closing: anyio.Event = self._state.closing
        while True:
            with anyio.move_on_after(self._look_again_in()):
                await closing.wait()
                raise End(1012, "gateway_stops")
            try:
                await self._known()
            except (ProducerError, Problem):
                continue  # not to be told now

    def _look_again_in(self) -> float:
        until = self._principal.expires_at
        if until is None:
            return _LOOK_AGAIN
        left = (until - datetime.now(UTC)).total_seconds()
        return min(max(left, 0.05), _LOOK_AGAIN)

    async def _token_over(self) -> None:
        over = Refused("token_expired", "The token is not valid any more; the agent goes on.")
        await self._line.send(over.as_frame())
        raise End(4401, "token_expired")
