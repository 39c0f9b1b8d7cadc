"""A worker slot: one process of the prefork pool, or one thread of the threads pool.

It owns one Postgres connection (claim, lock and every write of its turns), an event loop
for async graphs, and what is costly to make. Everything is opened lazily, after the fork.
"""

import asyncio
import logging
import os
import random
import socket
import threading
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any

import psycopg
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from graphs.registry import RegisteredGraph, Registry
from infra.failpoints import failpoint, on_disconnect
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query
from producers.wakeup import NO_LIMIT, Wake, broker
from workers import inline, revisits
from workers.claimed import Claimed, claim, claim_next
from workers.keeper import Keeper
from workers.made import MadeGraphs
from workers.publisher import publisher
from workers.session import Session
from workers.store import LentStore

log = logging.getLogger("fleet.slot")


class Slot:
    """Serves one turn at a time. Not shared between threads, but for its keeper."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        queue: str,
        worker: str | None = None,
        others: Iterable[str] = (),
    ) -> None:
        self.settings = settings
        self.registry = registry
        #: The worker's queues; due mail is taken from the first one while it has some.
        self.queues = deque((queue, *others))
        self._consumed = frozenset(self.queues)
        # `fleet workers` finds what a worker runs by the first part.
        self.owner = f"{worker or socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
        self.serde = JsonPlusSerializer()
        self.durability = inline.install()
        revisits.install()
        self.keeper = Keeper(settings)
        self.rng = random.Random()
        self.broker = broker(settings.require_redis())
        self.publisher = publisher(settings)
        self.tenant = ""
        self._conn: Session | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store = LentStore(
            settings.require_postgres(), self.owner, registry.store.ttl, registry.store_index
        )
        self.graphs = MadeGraphs(registry, self._store, self.run_async)
        on_disconnect(self.disconnect)

    def graph(self, name: str, config: dict[str, Any]) -> RegisteredGraph:
        """The graph for a run with this config. Raises RegistryError."""
        return self.graphs.get(name, config)

    def connection(self) -> Session:
        """The slot's session; opened anew when the last one was lost, never inside a turn."""
        if self._conn is None or self._conn.closed:
            failpoint("slot.before_connect", self._place)
            self._conn = connect(
                self.settings.require_postgres(), f"fleet-slot {self.owner}"[:63], Session
            )
            failpoint("slot.after_connect", self._place)
        return self._conn

    def _place(self) -> str:
        return self.owner.partition(":")[0]

    def close(self) -> None:
        """The slot's end: leave what its graphs opened, and close its session."""
        self.graphs.close()
        self.disconnect()

    def disconnect(self) -> None:
        """Close the session and all of its locks with it."""
        if self._conn is not None:
            self._conn.close()

    def claim(self, thread_id: str) -> Claimed:
        """Claim by name. A dead idle connection is replaced once: nothing was begun on it."""
        try:
            return self._claim(thread_id)
        except psycopg.OperationalError:
            if self._conn is not None and not self._conn.closed:
                raise
            return self._claim(thread_id)

    def _claim(self, thread_id: str) -> Claimed:
        failpoint("claim.before_lock", lambda: thread_id)
        return claim(self.connection(), thread_id, self.owner, self.settings.max_crashes)

    def begin_with(self, queue: str) -> None:
        """Take due mail from this queue first: a wake-up came from it.

        One that the worker was not started with (`celery control add_consumer`) is looked
        at until a wake-up comes from another.
        """
        if queue != self.queues[0]:
            # The one served last goes behind the others.
            self.queues.rotate(-1)
            rest = [q for q in self.queues if q != queue and q in self._consumed]
            self.queues = deque((queue, *rest))

    def claim_next(self) -> Claimed:
        """Claim the next due mail of the first queue, or say 'empty' in ``result``.

        An empty queue goes behind the worker's others, which are looked at in turn.
        """
        found = self._claim_next()
        for _ in range(len(self.queues) - 1):
            if found.result == "claimed":
                break
            self.queues.rotate(-1)
            found = self._claim_next()
        return found

    def _claim_next(self) -> Claimed:
        failpoint("claim.before_next", lambda: self.queues[0])
        return claim_next(
            self.connection(), self.queues[0], self.tenant, self.owner, self.settings.max_crashes
        )

    def due(self) -> Wake | None:
        """A wake-up for due mail of the first queue that has some."""
        for queue in self.queues:
            row = self.connection().execute(query("next_due"), {"queue": queue}).fetchone()
            if row is not None:
                return Wake(queue, row[0], NO_LIMIT)
        return None

    def following(self) -> dict[str, Any]:
        """What ``fleet.finish`` needs to claim again in the same round trip."""
        return {
            "owner": self.owner,
            "max_crashes": self.settings.max_crashes,
            "queue": self.queues[0],
            "tenant": self.tenant,
        }

    def run_async(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run on the slot's one event loop, in the calling thread's context."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(work)
