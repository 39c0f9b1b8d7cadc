"""Telling the workers that somebody reads: else they publish no events."""

import asyncio
import logging
from typing import Any

from redis.exceptions import ResponseError

from infra.event_stream import AUDIENCE, audience_lasts

log = logging.getLogger("fleet.live")

#: Seconds between two words: a broker that has forgotten everything is told again before a
#: worker that has just started (workers/audience.py) looks for them.
_EVERY = 2.0


class Audience:
    """events_age: seconds that events are kept."""

    def __init__(self, client: Any, events_age: float) -> None:
        self._client = client
        self._lasts = audience_lasts(events_age)
        self._refused = False

    async def say(self) -> None:
        """Say so once. Raises RedisError, OSError, TimeoutError where the broker is away."""
        try:
            await self._client.set(AUDIENCE, b"", ex=self._lasts)
            self._refused = False
        except ResponseError as exc:
            if not self._refused:
                log.warning("the broker does not take the key %s: %s", AUDIENCE, exc)
            self._refused = True

    async def keep_saying(self) -> None:
        """Until it is cancelled. Raises as `say` does."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.say()
