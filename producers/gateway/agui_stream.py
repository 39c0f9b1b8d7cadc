"""A thread's events on their way to one AG-UI client, as server-sent events.

The stream only watches. Whatever becomes of it, the run is a worker's and goes on; a client
comes back with the last id that it got, or runs the same thread again.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ag_ui.core import BaseEvent
from ag_ui.encoder import EventEncoder
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..errors import FleetUnavailable, ProducerError, UnknownThread
from ..live.events import Event, Lagging
from ..live.ids import EventId
from ..live.snapshot import Snapshot
from .agui_ends import GOES_ON, End, end_of
from .agui_events import OutOfStep, Translator
from .auth import Principal, Unauthorized, authenticate, expired
from .problems import Problem

#: Seconds of silence after which a comment says that we are there; so often, too, a caller's
#: leave is looked at anew.
HEARTBEAT = 10.0
#: Seconds after which what could not be looked at is looked at again.
_AGAIN = 1.0
#: Seconds for a thread's beginning to be read.
_OPENS_WITHIN = 10.0
#: Ends of a turn after which the next message has its turn.
_WELL = frozenset({"done", "waiting", "refused"})
_ALIVE = ": keep-alive\n\n"
_CLOSING = "The gateway is closing; the run goes on. Ask for its events again."
_EXPIRED = "The token is not valid any more; the run goes on. Come back with a new one."
_END: Final = object()
_encoder = EventEncoder()


class EventStream(StreamingResponse):
    """Server-sent events that no proxy is to keep back."""

    def __init__(self, listener: "Listener", frames: AsyncIterator[str]) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            # Also where the client had gone before the first of them.
            await self._listener.close()


class Listener:
    """One client of one thread; endless: it stays after the end of a run."""

    def __init__(
        self,
        state: Any,
        entry: "Entry",
        thread_id: str,
        translator: Translator,
        *,
        endless: bool = False,
    ) -> None:
        self._state = state
        self._entry = entry
        self._thread = thread_id
        self._translator = translator
        self._endless = endless
        # The messages whose end is the stream's; None for the end of all mail.
        self._ours: Collection[str] | None = None
        # Of these, those whose end has not been seen.
        self._unseen: set[str] = set()
        self._refused: dict[str, str | None] = {}
        self._last: EventId | None = None
        # Whether the run may be over, to be looked at; whether that has failed.
        self._due = self._failed = False
        self._watch: Watch | None = None
        # What was there before anything was handed over.
        self._before: Snapshot | None = None

    async def open(self) -> None:
        """Begin to watch before something is handed over, so that all of it is seen; a thread
        that does not exist yet is watched from its first moment on that can be had."""
        self._watch = Watch(self._state, self._thread, None)
        try:
            found = await self._watch.next(_OPENS_WITHIN)
            self._before = found if isinstance(found, Snapshot) else None
        except UnknownThread:
            pass
        finally:
            if self._before is None:
                await self.close()

    def expect(self, ours: Collection[str] | None, *, fresh: bool) -> None:
        """The stream ends with these. fresh: events of them are still to come."""
        self._ours = ours
        self._unseen = set(ours or ())
        self._due = self._before is not None and not fresh

    async def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.close()

    async def frames(
        self, after: EventId | None = None, first: Sequence[BaseEvent] = ()
    ) -> AsyncIterator[str]:
        """`first`, then what came after the event, or all there is, and then what comes."""
        self._last, over = after, False
        try:
            told = _texts(first, None)
            if self._before is not None:
                self._last = self._before.head
                told += _texts(self._translator.snapshot(self._before), self._last)
            for text in told:
                yield text
            watch = self._watch = self._watch or Watch(self._state, self._thread, after)
            with self._state.presence.watching(self._thread):
                while not over:
                    try:
                        told, over = await self._step(watch, await watch.next(self._patience()))
                    except ProducerError as exc:
                        told, over = self._broken(exc.code, str(exc)), True
                    for text in told:
                        yield text
        finally:
            await self.close()

    async def _step(self, watch: "Watch", item: Any) -> tuple[list[str], bool]:
        """(what to send, whether it was the last)."""
        if watch.closing:
            told = self._broken("gateway_closing", _CLOSING) if self._translator.running else []
            return told, True
        if not await self._entry.valid():
            return self._broken("token_expired", _EXPIRED), True
        if isinstance(item, Lagging):
            await watch.again(self._last)
            return [], False
        events: list[BaseEvent] = []
        end, result = None, None
        if isinstance(item, Snapshot):
            self._last = item.head
            events += self._translator.snapshot(item)
            end = end_of(item.thread, self._ours, self._refused)
        elif isinstance(item, Event):
            try:
                events += self._translator.event(item)
            except OutOfStep:
                await watch.again(None)
                return [], False
            self._last = item.id
            self._note(item)
        if self._due:
            end, result = await self._look()
        if end is not None:
            events += self._translator.finish(end, result)
        quiet = item is None and not events
        return [_ALIVE] if quiet else _texts(events, self._last), bool(end) and not self._endless

    def _patience(self) -> float:
        """Seconds to wait for the next event."""
        if self._due:
            return _AGAIN if self._failed else 0.0
        return self._entry.seconds(HEARTBEAT)

    def _note(self, event: Event) -> None:
        """Whether the event may have ended the run."""
        if event.type not in ("ended", "status"):
            return
        outcome, message_id = event.data.get("outcome"), str(event.data.get("message_id"))
        if outcome in GOES_ON:
            return
        if outcome == "refused":
            self._refused[message_id] = event.data.get("error")
        self._unseen.discard(message_id)
        # While others' turns end well, ours are still to be told.
        self._due = self._due or not self._unseen or outcome not in _WELL

    async def _look(self) -> tuple[End | None, Snapshot | None]:
        """What is committed decides; where it can't be read now, it is tried again."""
        try:
            async with contextlib.aclosing(self._state.hub.watch(self._thread)) as items:
                found = await anext(items, None)
        except FleetUnavailable:
            found = None
        self._due = self._failed = not isinstance(found, Snapshot)
        if not isinstance(found, Snapshot):
            return None, None
        return end_of(found.thread, self._ours, self._refused), found

    def _broken(self, code: str, message: str) -> list[str]:
        return _texts(self._translator.finish(End("error", code=code, message=message)), None)


class Entry:
    """A caller's leave to listen: until the token's time is over or it is taken back."""

    def __init__(self, state: Any, token: str | None, principal: Principal) -> None:
        self._state = state
        self._token = token
        self._principal = principal
        self._looked = time.monotonic()

    def seconds(self, longest: float) -> float:
        """How long nothing has to be looked at."""
        ends = self._principal.expires_at
        if ends is None:
            return longest
        return max(0.0, min(longest, (ends - datetime.now(UTC)).total_seconds()))

    async def valid(self) -> bool:
        """Whether the caller may still listen; whether it was taken back is looked at seldom."""
        if expired(self._principal):
            return False
        if time.monotonic() - self._looked < HEARTBEAT:
            return True
        self._looked = time.monotonic()
        try:
            self._principal = await authenticate(self._state, self._token)
        except Unauthorized:
            return False
        except (Problem, ProducerError):
            # Who it is can't be looked up now; what was found counts until its time is over.
            return True
        return True


class Watch:
    """What the hub has of a thread, waited for a while at a time."""

    def __init__(self, state: Any, thread_id: str, after: EventId | None) -> None:
        self._hub = state.hub
        self._thread = thread_id
        self._items = self._hub.watch(thread_id, after)
        self._next: asyncio.Task[Any] | None = None
        self._stop = asyncio.ensure_future(state.closing.wait())
        #: Nothing comes any more, since the gateway ends.
        self.closing = False

    async def next(self, seconds: float) -> Event | Snapshot | Lagging | None:
        """None where nothing came for so long, or the gateway is closing."""
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._items, _END))
        waited = {self._next, self._stop}
        await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            self.closing = True
            return None
        if not self._next.done():
            return None
        done, self._next = self._next, None
        item = done.result()
        if item is _END:
            self.closing = True
            return None
        return item  # type: ignore[no-any-return]

    async def again(self, after: EventId | None) -> None:
        """Begin anew: after this event, or with a snapshot."""
        await self._leave()
        self._items = self._hub.watch(self._thread, after)

    async def close(self) -> None:
        self._stop.cancel()
        await self._leave()

    async def _leave(self) -> None:
        task, self._next = self._next, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if not task.cancelled():
                task.exception()  # nobody asks for it any more
        await self._items.aclose()


def _texts(events: Sequence[BaseEvent], last: EventId | None) -> list[str]:
    """Server-sent events. Only the last one is a place to come back to: it stands for all that
    one event of the thread's became."""
    texts = [_encoder.encode(event) for event in events]
    if texts and last is not None:
        texts[-1] = f"id: {last}\n{texts[-1]}"
    return texts
