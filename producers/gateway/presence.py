"""Who is there: the threads that somebody watches through this gateway, said to Postgres.

Every ten seconds in one statement, however many there are, and soon after somebody came or
went. A gateway that is killed says nothing, and what it said last grows old.
"""

import asyncio
import contextlib
import os
import secrets
import socket
from collections import Counter
from collections.abc import Iterator

import structlog

from ..errors import ProducerError
from .database import Database

#: Seconds between two words for all, and for which comings and goings are gathered.
_EVERY, _GATHERED = 10.0, 0.05
_log = structlog.get_logger(__name__)


class Presence:
    """One per gateway process. `watching` is for the time of a connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.gateway = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._watched: Counter[str] = Counter()
        self._new: set[str] = set()
        self._gone: set[str] = set()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="presence")

    async def aclose(self) -> None:
        """Say of all that they are gone, as far as Postgres listens."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._gone |= self._watched.keys()
        self._watched.clear()
        await self._say([])

    @contextlib.contextmanager
    def watching(self, thread_id: str) -> Iterator[None]:
        """Somebody watches the thread for as long as this lasts."""
        self._watched[thread_id] += 1
        if self._watched[thread_id] == 1:
            self._gone.discard(thread_id)
            self._new.add(thread_id)
            self._changed.set()
        try:
            yield
        finally:
            self._leave(thread_id)

    def _leave(self, thread_id: str) -> None:
        self._watched[thread_id] -= 1
        if self._watched[thread_id] <= 0:
            del self._watched[thread_id]
            self._new.discard(thread_id)
            self._gone.add(thread_id)
            self._changed.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
                    await asyncio.sleep(_GATHERED)
            self._changed.clear()
            if loop.time() >= due:
                due = loop.time() + _EVERY
                await self._say(sorted(self._watched))
            else:
                await self._say(sorted(self._new))

    async def _say(self, here: list[str]) -> None:
        gone, self._gone = self._gone, set()
        self._new.clear()
        if not here and not gone:
            return
        try:
            await self._database.row(
                "beat", reads=True, gateway=self.gateway, here=here, gone=sorted(gone)
            )
        except Exception as exc:
            # Whatever it is: those who are there come with the next word for all, and so do
            # those who went. Nobody would start this task again.
            self._gone |= {thread for thread in gone if thread not in self._watched}
            known = isinstance(exc, ProducerError)
            _log.warning("presence_unsaid", error=str(exc), exc_info=not known)
        except BaseException:
            self._gone |= gone
            raise
