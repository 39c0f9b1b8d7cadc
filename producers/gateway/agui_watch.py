"""What a stream waits for, and whether its client may still listen."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Any, Final

from ..errors import ProducerError
from ..live.events import Event, Lagging
from ..live.ids import EventId
from ..live.snapshot import Snapshot
from .auth import Unauthorized, authenticate, expired
from .owners import Access
from .problems import Problem

#: Seconds of silence after which a comment says that we are there; so often, too, a caller's
#: leave is looked at anew.
HEARTBEAT = 10.0
_END: Final = object()


class Entry:
    """A caller's leave to listen: until the token's time is over or it is taken back."""

    def __init__(self, state: Any, token: str | None, access: Access) -> None:
        self._state = state
        self._token = token
        self._principal = access.principal
        #: The thread is not known to be theirs.
        self.guest = access.guest
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

    def __init__(
        self, state: Any, thread_id: str, after: EventId | None, *, new: bool = False
    ) -> None:
        """new: of a thread that there was not when it was looked for."""
        self._hub = state.hub
        self._thread = thread_id
        self._items = self._hub.watch(thread_id, after, new=new)
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
