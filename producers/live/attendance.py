"""Telling the workers that somebody reads: else they publish no events."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError, ResponseError

from infra.event_stream import AUDIENCE, audience_lasts
from infra.redis import script

from .streams import client
from .tasks import apart

log = logging.getLogger("fleet.live")

#: Seconds between two words, and that the first one may take. A broker that has forgotten
#: everything is told again while workers still take readers for granted (workers/audience.py).
_EVERY, _AT_FIRST = 2.0, 0.5


class Attendance:
    """One per hub. events_age: seconds that events are kept. `lapsed` is called where the
    broker had forgotten that somebody reads: workers may have published nothing meanwhile."""

    def __init__(self, url: str, events_age: float, lapsed: Callable[[], None]) -> None:
        self._client = client(url)
        self._lasts = int(1000 * audience_lasts(events_age))
        self._lapsed = lapsed
        self._said = False
        self._refused = False

    async def begin(self) -> None:
        """Say so before anything is read; not for long where the broker is away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_AT_FIRST):
                await apart(self._say())

    async def keep_saying(self) -> None:
        """Until it is cancelled. Whether the broker is there is for others to judge."""
        while True:
            await self._say()
            await asyncio.sleep(_EVERY)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _say(self) -> None:
        try:
            new = await self._client.eval(script("attend"), 1, AUDIENCE, self._lasts)
        except ResponseError as exc:
            if not self._refused:
                log.warning(
                    "the broker does not take the key %s, without which workers publish no live "
                    "events: %s. Another reader may set it, or let this user do so.",
                    AUDIENCE,
                    exc,
                )
            self._refused = True
        except (RedisError, OSError, TimeoutError) as exc:
            log.debug("%s was not set: %s", AUDIENCE, exc)
        else:
            self._refused = False
            if new and self._said:
                self._lapsed()
            self._said = True
