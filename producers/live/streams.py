"""Reading streams of events in the broker.

A broker that has just failed to answer is not asked for a second: many threads are watched
at once, and each would wait for it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from infra.event_stream import AUDIENCE, FIELD, PUBLISHED_AT, stream

from .events import Event, batch
from .ids import EventId

log = logging.getLogger("fleet.live")

#: Seconds for an answer, and without a further try once there was none.
ANSWER_WITHIN, PAUSE = 2.0, 1.0
_AT_ONCE, _ENTRIES, _PIPELINED = 8, 500, 200


class BrokerAway(Exception):
    """The broker can't be read now."""


def client(url: str) -> Redis:
    """Answers soon or fails; it is for the caller to try again."""
    made: Redis = Redis.from_url(
        url,
        socket_timeout=ANSWER_WITHIN,
        socket_connect_timeout=ANSWER_WITHIN,
        socket_keepalive=True,
        retry=Retry(NoBackoff(), 0),
        client_name="fleet-live",
    )
    return made


class Streams:
    """`url` None: there is no broker, which is then away for good."""

    def __init__(self, url: str | None) -> None:
        self._client = client(url) if url else None
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._away_until = 0.0

    @property
    def there(self) -> bool:
        """Whether there is a broker, be it away."""
        return self._client is not None

    async def after(self, thread_id: str, position: EventId) -> list[Event]:
        """The events of all entries that end after `position`, which may be in the first.

        Raises BrokerAway.
        """
        start = f"({position}"
        events: list[Event] = []
        while True:
            async with self._asked() as broker:
                found: Any = await broker.xrange(stream(thread_id), min=start, count=_ENTRIES)
            for entry in found:
                events += _events(thread_id, entry)
            if len(found) < _ENTRIES:
                return events
            start = f"({found[-1][0].decode()}"

    async def at(self, thread_id: str, position: EventId) -> Event | None:
        """The event of this id, where all that followed it has been published.

        Raises BrokerAway.
        """
        async with self._asked() as broker, broker.pipeline(transaction=False) as pipe:
            pipe.get(AUDIENCE)
            pipe.xrange(stream(thread_id), min=str(position), count=1)
            since, found = await pipe.execute()
        events = [
            event for entry in found if _heard(entry, since) for event in _events(thread_id, entry)
        ]
        return next((event for event in events if event.id == position), None)

    async def newest(self, thread_id: str) -> Event | None:
        """The last event of the stream. Raises BrokerAway."""
        async with self._asked() as broker:
            found: Any = await broker.xrevrange(stream(thread_id), count=1)
        events = [event for entry in found for event in _events(thread_id, entry)]
        return events[-1] if events else None

    async def ahead(self, positions: Mapping[str, EventId]) -> list[str]:
        """The threads whose stream goes on after the position. Raises BrokerAway."""
        names = list(positions)
        found: list[str] = []
        for start in range(0, len(names), _PIPELINED):
            some = names[start : start + _PIPELINED]
            async with self._asked() as broker, broker.pipeline(transaction=False) as pipe:
                for name in some:
                    pipe.xrange(stream(name), min=f"({positions[name]}", count=1)
                answers = await pipe.execute(raise_on_error=False)
            found += [n for n, answer in zip(some, answers, strict=True) if answer]
        return found

    def back(self) -> None:
        """The broker has answered elsewhere."""
        self._away_until = 0.0

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[Redis]:
        async with self._turns:
            if self._client is None or time.monotonic() < self._away_until:
                raise BrokerAway
            try:
                yield self._client
            except (RedisError, OSError, TimeoutError) as exc:
                if not self._away_until:
                    log.warning("the broker can't be read for now: %s", exc)
                self._away_until = time.monotonic() + PAUSE
                raise BrokerAway from exc
            self._away_until = 0.0


def _heard(entry: Any, since: bytes | None) -> bool:
    """Whether the audience, there `since` then, was there when the entry was published."""
    published = entry[1].get(PUBLISHED_AT.encode(), b"0")
    return (
        since is not None
        and published.isdigit()
        and since.isdigit()
        and int(published) >= int(since)
    )


def _events(thread_id: str, entry: Any) -> list[Event]:
    try:
        return batch(entry[1][FIELD.encode()])
    except (KeyError, ValueError) as exc:
        # Somebody else's: a chain of events that is broken by it is noticed as such.
        log.warning("an entry of the events of %s can't be read: %s", thread_id, exc)
        return []
