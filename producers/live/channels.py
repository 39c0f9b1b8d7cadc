"""One connection to the broker, on which the channels of all watched threads are heard."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from infra.event_stream import channel, database_of

from .streams import client
from .tasks import end

log = logging.getLogger("fleet.live")

#: Seconds without a word after which the broker is asked for one, and given up.
_ASK_AFTER, _GIVE_UP_AFTER = 3.0, 6.0
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
_AT_ONCE = 500
#: No thread's: a connection with no channel at all could not be listened to.
_NOBODY = ""


class Channels:
    """Calls `heard(thread_id, text)` for each batch, and `back()` whenever all channels are
    subscribed after a time when they were not."""

    def __init__(
        self, url: str, heard: Callable[[str, bytes], None], back: Callable[[], None]
    ) -> None:
        self._client = client(url)
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
        sender: asyncio.Task[None] | None = None
        try:
            await pubsub.subscribe(self._name(_NOBODY))
            sender = asyncio.create_task(self._subscribe(pubsub))
            await self._listen(pubsub, sender)
        finally:
            if sender is not None:
                await end([sender])
            with suppress(RedisError, OSError, TimeoutError):
                await pubsub.aclose()  # type: ignore[no-untyped-call]

    async def _listen(self, pubsub: Any, sender: "asyncio.Task[None]") -> None:
        heard_at = time.monotonic()
        while True:
            message = await pubsub.get_message(timeout=_ASK_AFTER)
            now = time.monotonic()
            if message is None:
                if sender.done():
                    sender.result()
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
