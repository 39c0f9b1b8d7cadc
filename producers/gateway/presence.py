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


class _Watched(Counter[str]):
    """How many watch each thread; new, gone: what is to be said of that."""

    def __init__(self) -> None:
        super().__init__()
        self.new: set[str] = set()
        self.gone: set[str] = set()

    def come(self, thread_id: str) -> None:
        self[thread_id] += 1
        if self[thread_id] == 1:
            self.gone.discard(thread_id)
            self.new.add(thread_id)

    def leave(self, thread_id: str) -> None:
        self[thread_id] -= 1
        if self[thread_id] <= 0:
            del self[thread_id]
            self.new.discard(thread_id)
            self.gone.add(thread_id)

    def end(self) -> None:
        self.gone |= self.keys()
        self.clear()
        self.new.clear()


class Presence:
    """One per gateway process. `watching` is for the time of a connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.gateway = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._watched, self._guests = _Watched(), _Watched()
        self._changed = asyncio.Event()
        self._saying = asyncio.Lock()
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
        self._watched.end()
        self._guests.end()
        await self._say(every=False)

    @contextlib.contextmanager
    def watching(self, thread_id: str, *, guest: bool = False) -> Iterator[None]:
        """Somebody watches the thread for as long as this lasts. guest: it is not known to be
        theirs; to a user's sensitive session such a one does not count."""
        watched = self._guests if guest else self._watched
        watched.come(thread_id)
        self._changed.set()
        try:
            yield
        finally:
            watched.leave(thread_id)
            if thread_id in self._guests:
                self._guests.new.add(thread_id)
            self._changed.set()

    async def say_all(self) -> bool:
        """Say of all who are there that they still are; whether Postgres has heard it."""
        return await self._say(every=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._changed.wait()
                    await asyncio.sleep(_GATHERED)
            self._changed.clear()
            every = loop.time() >= due
            if every:
                due = loop.time() + _EVERY
            await self._say(every=every)

    async def _say(self, *, every: bool) -> bool:
        """every: of all who are there, not only of who has come. One word after the other."""
        async with self._saying:
            return await self._say_now(every)

    async def _say_now(self, every: bool) -> bool:
        watched, guests = self._watched, self._guests
        here = {*watched} if every else watched.new
        looking = ({*guests} if every else guests.new) - watched.keys()
        gone, left = watched.gone, guests.gone - watched.keys()
        for one in watched, guests:
            one.new, one.gone = set(), set()
        if not (here or looking or gone or left):
            return True
        try:
            await self._database.row(
                "beat",
                reads=True,
                gateway=self.gateway,
                here=sorted(here),
                gone=sorted(gone),
                guests=sorted(looking),
                guests_gone=sorted(left),
            )
        except Exception as exc:
            # Whatever it is: those who are there come with the next word for all, and so do
            # those who went. Nobody would start this task again.
            watched.gone |= gone - watched.keys()
            guests.gone |= left - guests.keys()
            known = isinstance(exc, ProducerError)
            _log.warning("presence_unsaid", error=str(exc), exc_info=not known)
            return False
        except BaseException:
            watched.gone |= gone
            guests.gone |= left
            raise
        return True
