"""Since when the broker remembers what it is told.

A mark in the broker holds the moment. Each gateway looks for it all the time; who does not find
it, as after a restart that lost all or after the broker was emptied, sets a new one. Whoever finds
a new one says once more who is there, and goes by it only when the others have had time to do
so too.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import structlog
from redis.exceptions import RedisError

from ..errors import ProducerError
from ..live.streams import ANSWER_WITHIN, client
from .database import Database

MARK = "fleet:remembers-since"
#: Seconds between two looks, and until every gateway has found a new mark: a look may wait for
#: ANSWER_WITHIN before the next one finds it.
_EVERY, _FOUND_BY_ALL = 2.0, 6.0
_log = structlog.get_logger(__name__)


class BrokerMemory:
    """One per gateway process. `url` None: there is no broker, and so nothing it could forget.
    `changed` is awaited before anybody is compared with a new mark; again at the next look where
    it gives False."""

    def __init__(
        self, url: str | None, database: Database, changed: Callable[[], Awaitable[bool]]
    ) -> None:
        self._client = client(url) if url else None
        self._database = database
        self._changed = changed
        self._known = None if url else datetime.min.replace(tzinfo=UTC)
        #: A mark of which `changed` knows, and when it came to know.
        self._new: tuple[datetime, float] | None = None
        self._looked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look; a new broker gets its mark before anybody is compared with it."""
        if self._client is None:
            self._looked.set()
        else:
            self._task = asyncio.create_task(self._keep_looking(), name="broker-memory")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._client is not None:
            await self._client.aclose()

    async def since(self) -> datetime | None:
        """By the database's clock, as it was found last; None where it never was. Waits for the
        first look only, and not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_WITHIN):
                await self._looked.wait()
        return self._known

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self._look()
            except (RedisError, OSError, TimeoutError, ProducerError):
                pass  # as it was known last
            except Exception:
                # Whatever it is: nobody would start this task again.
                _log.exception("broker_memory_fault")
            self._looked.set()
            await asyncio.sleep(_EVERY)

    async def _look(self) -> None:
        assert self._client is not None
        given = await self._client.get(MARK)
        found = _moment(given)
        if found is None:
            now = await self._database.row("moment", reads=True)
            assert now is not None
            await self._client.set(MARK, now["now"].isoformat(), nx=given is None)
            found = _moment(await self._client.get(MARK))
        if found is not None and found != self._known:
            await self._take(found)

    async def _take(self, found: datetime) -> None:
        now = asyncio.get_running_loop().time()
        if self._new is None or self._new[0] != found:
            if not await self._changed():
                return
            self._new = found, now
        # Who knows of none yet asks everybody.
        if self._known is None or now - self._new[1] >= _FOUND_BY_ALL:
            self._known = found


def _moment(given: Any) -> datetime | None:
    """None for what is none."""
    try:
        found = None if given is None else datetime.fromisoformat(given.decode())
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None
