"""Reading events in Postgres, on sessions and threads of its own."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
import psycopg
from psycopg.rows import tuple_row

from infra.sql import query

from ..sessions import Sessions
from .events import Event
from .ids import EventId

T = TypeVar("T")
_AT_ONCE = 3


def texts(conn: psycopg.Connection[Any], name: str, **params: Any) -> list[str]:
    """The rows of a named query that gives text."""
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(query(name), params)
        return [text for (text,) in cursor.fetchall()]


class Durable:
    """Raises FleetUnavailable while Postgres can't be asked, and NotMigrated."""

    def __init__(self, url: str, answer_within: float) -> None:
        self._sessions = Sessions(url, answer_within)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "fleet-live")

    async def run(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What `work`, which only reads, gives; it is called in another thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: self._sessions.run(work, reads=True)
        )

    async def after(self, thread_id: str, last: EventId) -> list[Event]:
        """The thread's durable events after `last`, in order of their ids."""

        def work(conn: psycopg.Connection[Any]) -> list[Event]:
            found = texts(conn, "events_after", thread_id=thread_id, epoch=last.epoch, n=last.n)
            return [_event(text) for text in found]

        return await self.run(work)

    async def newest(self, thread_id: str) -> EventId | None:
        found = await self.run(lambda conn: texts(conn, "newest_event", thread_id=thread_id))
        return EventId(*json.loads(found[0])) if found else None

    async def ahead(self, positions: Mapping[str, EventId]) -> dict[str, EventId]:
        """The newest event of each thread that has one after its position."""
        found = await self.run(
            lambda conn: texts(
                conn,
                "events_ahead",
                threads=list(positions),
                epochs=[p.epoch for p in positions.values()],
                ns=[p.n for p in positions.values()],
            )
        )
        return {thread: EventId(epoch, n) for thread, epoch, n in map(json.loads, found)}

    async def known(self, thread_id: str, ids: Iterable[EventId]) -> set[EventId]:
        """Those of these events that are durable."""
        asked = list(ids)
        found = await self.run(
            lambda conn: texts(
                conn,
                "events_known",
                thread_id=thread_id,
                epochs=[i.epoch for i in asked],
                ns=[i.n for i in asked],
            )
        )
        return {EventId(*json.loads(text)) for text in found}

    async def aclose(self) -> None:
        # Not waited for: a Postgres that does not answer is given up in its own time.
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._sessions.close()


def _event(text: str) -> Event:
    name, kind, at, data = orjson.loads(text)
    return Event(EventId.parse(name), kind, at, data)
