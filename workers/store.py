"""The store that a slot lends to graphs: LangGraph's PostgresStore, opened at its first use.

It has a connection of its own, since what a node keeps there is no part of its turn: it is
written at once, by every attempt, whether the turn ends well or not. It searches and forgets
as the graphs file says (graphs.kept).
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, cast

import psycopg
from langgraph.store.base import BaseStore, Op, Result, TTLConfig
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.base import PostgresIndexConfig
from psycopg.rows import DictRow, dict_row

from infra.postgres import connect

Index: TypeAlias = Callable[[], PostgresIndexConfig | None]


class LentStore(BaseStore):
    """A PostgresStore on a session of its own; a session that was lost is replaced."""

    supports_ttl = True

    def __init__(self, url: str, owner: str, ttl: TTLConfig, index: Index) -> None:
        """``index`` is called at the first use, when modules may be imported."""
        self._url = url
        self._index = index
        # Read by BaseStore's put, get and search, for what they are not told.
        self.ttl_config = ttl or None
        self._name = f"fleet-store {owner}"[:63]
        self._lock = threading.Lock()
        self._conn: psycopg.Connection[Any] | None = None
        self._store: PostgresStore | None = None

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        given = [*ops]
        fresh = self._conn is None
        try:
            return self._opened().batch(given)
        except psycopg.OperationalError:
            # Gone while idle, as a rule; the operations are the same when done twice.
            if fresh or self._conn is None or not self._conn.closed:
                raise
            return self._opened().batch(given)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await asyncio.to_thread(self.batch, [*ops])

    def _opened(self) -> PostgresStore:
        with self._lock:
            if self._store is None or self._conn is None or self._conn.closed:
                index = self._index()
                conn = connect(self._url, self._name, row_factory=dict_row)
                self._conn = conn
                self._store = PostgresStore(
                    cast("psycopg.Connection[DictRow]", conn), index=index, ttl=self.ttl_config
                )
            return self._store
