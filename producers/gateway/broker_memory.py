"""Since when the broker remembers what it is told.

A mark in the broker holds the moment. Who does not find it, as after a restart that lost all or
after the broker was emptied, sets a new one.
"""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

from redis.exceptions import RedisError

from ..errors import ProducerError
from ..live.streams import client
from .database import Database

MARK = "fleet:remembers-since"


class BrokerMemory:
    """One per gateway process. `url` None: there is no broker, and so nothing it could forget."""

    def __init__(self, url: str | None, database: Database) -> None:
        self._client = client(url) if url else None
        self._database = database
        self._known = None if url else datetime.min.replace(tzinfo=UTC)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Set the mark of a new broker, before anybody is compared with it."""
        self._task = asyncio.create_task(self._begin(), name="broker-memory")

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._client is not None:
            await self._client.aclose()

    async def since(self) -> datetime | None:
        """By the database's clock. While the broker is away, as it was known last; None where it
        never was. Raises FleetUnavailable, NotMigrated."""
        if self._client is None:
            return self._known
        try:
            found: Any = await self._client.get(MARK)
            if found is None:
                now = await self._database.row("moment", reads=True)
                assert now is not None
                await self._client.set(MARK, now["now"].isoformat(), nx=True)
                found = await self._client.get(MARK)
        except (RedisError, OSError, TimeoutError):
            return self._known
        if found is not None:
            self._known = datetime.fromisoformat(found.decode())
        return self._known

    async def _begin(self) -> None:
        with contextlib.suppress(ProducerError):
            await self.since()
