"""One connection to the broker, on which the channels of all watched threads are heard."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from infra.event_stream import channel, database_of

from .audience import Audience
from .streams import client
from .tasks import apart, end

log = logging.getLogger("fleet.live")

#: Seconds without a word after which the broker is asked for one, and given up.
_ASK_AFTER, _GIVE_UP_AFTER = 3.0, 6.0
#: Seconds that the first word to the workers may take.
_BEGIN_WITHIN = 0.5
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
_AT_ONCE = 500
#: No thread's: a connection with no channel at all could not be listened to.
_NOBODY = ""


class Channels:
    """Calls `heard(thread_id, text)` for each batch, and `back()` whenever all channels are
    subscribed after a time when they were not."""

    def __init__(
        self,
        url: str,
        heard: Callable[[str, bytes], None],
        back: Callable[[], None],
        events_age: float,
    ) -> None:
        """events_age: seconds that events are kept."""
        self._client = client(url)
        self._audience = Audience(self._client, events_age)
        self._database = database_of(url)
        self._heard = heard
        self._back = back
        self._wanted: dict[str, asyncio.Event] = {}
        self._have: set[str] = set()
        self._changed = asyncio.Event()
        #: Whether what is published now is heard.
        self.up = False

    def add(self, thread_id: str) -> asyncio.Event:
        """Set once the thread's channel is heard, and while it can't be."""
        found = self._wanted.get(thread_id)
        if found is None:
            found = self._wanted[thread_id] = asyncio.Event()
            self._changed.set()
            if not self.up or thread_id in self._have:
                found.set()
        return found

    def remove(self, thread_id: str) -> None:
        self._wanted.pop(thread_id, None)
        self._changed.set()

    async def begin(self) -> None:
        """Before anything is read; not long where the broker is away."""
        with suppress(RedisError, OSError, TimeoutError):
            async with asyncio.timeout(_BEGIN_WITHIN):
                await apart(self._audience.say())

    async def run(self) -> None:
        """Until it is cancelled."""
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._session()
            except (RedisError, OSError, TimeoutError) as exc:
                if self.up:
                    pause = _FIRST_PAUSE
                    log.warning("events are not heard for now: %s", exc)
            except Exception:
                # Nobody would start it again.
                log.exception("events are not heard for now")
            finally:
                self.up = False
                for event in self._wanted.values():
                    event.set()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _session(self) -> None:
        pubsub = self._client.pubsub()
        self._have = set()
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._audience.say()
            await pubsub.subscribe(self._name(_NOBODY))
            for work in self._audience.keep_saying(), self._subscribe(pubsub):
                tasks.append(asyncio.create_task(work))
            await self._listen(pubsub, tasks)
        finally:
            await end(tasks)
            with suppress(RedisError, OSError, TimeoutError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _listen(self, pubsub: Any, tasks: "list[asyncio.Task[None]]") -> None:
        heard_at = time.monotonic()
        while True:
            message = await pubsub.get_message(timeout=_ASK_AFTER)
            now = time.monotonic()
            for task in tasks:
                if task.done():
                    task.result()
            if message is None:
                if now - heard_at > _GIVE_UP_AFTER:
                    raise TimeoutError(f"no word from it for {_GIVE_UP_AFTER:g} s")
                await pubsub.ping()
                continue
            heard_at = now
            if message["type"] == "message":
                self._heard(self._thread(message["channel"]), message["data"])
            elif message["type"] == "subscribe":
                self._subscribed(self._thread(message["channel"]))

    def _name(self, thread_id: str) -> str:
        return channel(thread_id, self._database)

    def _thread(self, name: bytes) -> str:
        return name.decode().removeprefix(self._name(""))

    def _subscribed(self, thread_id: str) -> None:
        self._have.add(thread_id)
        if self.up and thread_id in self._wanted:
            self._wanted[thread_id].set()
        if not self.up and self._wanted.keys() <= self._have:
            self.up = True
            for event in self._wanted.values():
                event.set()
            self._back()

    async def _subscribe(self, pubsub: Any) -> None:
        """Keep what is subscribed to what is wanted."""
        asked: set[str] = set()
        while True:
            self._changed.clear()
            wanted = self._wanted.keys()
            gone, new = list(asked - wanted), list(wanted - asked)
            # Before it is said: one that is wanted again meanwhile has to wait.
            self._have.difference_update(gone)
            for start in range(0, len(gone), _AT_ONCE):
                await pubsub.unsubscribe(*map(self._name, gone[start : start + _AT_ONCE]))
            for start in range(0, len(new), _AT_ONCE):
                await pubsub.subscribe(*map(self._name, new[start : start + _AT_ONCE]))
            asked = asked.difference(gone).union(new)
            await self._changed.wait()
