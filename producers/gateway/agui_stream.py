"""A thread's events on their way to one AG-UI client, as server-sent events.

The stream only watches. Whatever becomes of it, the run is a worker's and goes on; a client
comes back with the last id that it got, or runs the same thread again.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any

from ag_ui.core import BaseEvent
from ag_ui.encoder import EventEncoder
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..errors import AnswerRefused, FleetUnavailable, ProducerError, UnknownThread
from ..live.events import Event, Lagging
from ..live.ids import EventId
from ..live.snapshot import Snapshot
from . import agui_watch, slow
from .agui_ends import GOES_ON, End, end_of
from .agui_events import OutOfStep, Translator
from .agui_messages import clean
from .agui_watch import Entry, Watch

#: Seconds after which what could not be looked at is looked at again.
_AGAIN = 1.0
#: Seconds for a thread's beginning to be read.
_OPENS_WITHIN = 10.0
#: Ends of a turn after which the next message has its turn.
_WELL = frozenset({"done", "waiting", "refused"})
_ALIVE = ": keep-alive\n\n"
_CLOSING = "The gateway is closing; the run goes on. Ask for its events again."
_EXPIRED = "The token is not valid any more; the run goes on. Come back with a new one."
_encoder = EventEncoder()


class EventStream(StreamingResponse):
    """Server-sent events that no proxy is to keep back."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[str], listener: "Listener | None" = None) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(frames, headers=headers)
        self._frames, self._listener = frames, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, slow.within(send))
        except slow.TooSlow:
            slow.abort(scope)
            await asyncio.sleep(0)  # the protocol hears of it
        finally:
            # Also where the client has gone while nothing was waited for but it, or before the
            # first of them.
            await self._frames.aclose()
            if self._listener is not None:
                await self._listener.close()


async def refusal(
    translator: Translator, run_id: str, refused: ProducerError
) -> AsyncGenerator[str]:
    """A run that ended before it began: nothing of it was accepted."""
    code = refused.reason if isinstance(refused, AnswerRefused) else refused.code
    end = End("error", code=code, message=str(refused))
    for text in _texts([*translator.begin(run_id), *translator.finish(end)], None):
        yield text


class Listener:
    """One client of one thread; endless: it stays after the end of a run."""

    def __init__(
        self,
        state: Any,
        entry: Entry,
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
        # What was there before anything was handed over; whether there was no thread.
        self._before: Snapshot | None = None
        self._new = False

    async def open(self) -> None:
        """Begin to watch before something is handed over, so that all of it is seen; also of a
        thread that does not exist yet."""
        self._watch = Watch(self._state, self._thread, None)
        try:
            found = await self._watch.next(_OPENS_WITHIN)
            self._before = found if isinstance(found, Snapshot) else None
        except UnknownThread:
            self._new = True
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
    ) -> AsyncGenerator[str]:
        """`first`, then what came after the event, or all there is, and then what comes."""
        self._last, over = after, False
        try:
            told = _texts(first, None)
            if self._before is not None:
                self._last = self._before.head
                told += _texts(self._translator.snapshot(self._before), self._last)
            for text in told:
                yield text
            if self._watch is None:
                self._watch = Watch(self._state, self._thread, after, new=self._new)
            watch = self._watch
            with self._state.presence.watching(self._thread, guest=self._entry.guest):
                while not over:
                    try:
                        told, over = await self._step(watch, await watch.next(self._patience()))
                    except ProducerError as exc:
                        told, over = self._broken(exc.code, str(exc)), True
                    for text in told:
                        yield text
        finally:
            await self.close()

    async def _step(self, watch: Watch, item: Any) -> tuple[list[str], bool]:
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
            end = self._end(item)
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
        return self._entry.seconds(agui_watch.HEARTBEAT)

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
        return self._end(found), found

    def _end(self, found: Snapshot) -> End | None:
        return end_of(found.thread, self._ours, self._refused, found.running_tools)

    def _broken(self, code: str, message: str) -> list[str]:
        return _texts(self._translator.finish(End("error", code=code, message=message)), None)


def _texts(events: Sequence[BaseEvent], last: EventId | None) -> list[str]:
    """Server-sent events. Only the last one is a place to come back to: it stands for all that
    one event of the thread's became."""
    texts = [_encoded(event) for event in events]
    if texts and last is not None:
        texts[-1] = f"id: {last}\n{texts[-1]}"
    return texts


def _encoded(event: BaseEvent) -> str:
    try:
        return _encoder.encode(event)
    except ValueError:
        # Half of a surrogate pair, of a client's or a graph's, can't be sent as it is.
        data = json.dumps(event.model_dump(by_alias=True), ensure_ascii=False, default=str)
        return f"data: {clean(data)}\n\n"
