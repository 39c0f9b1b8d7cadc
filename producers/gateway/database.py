"""The gateway's own queries on Postgres, off the event loop: keys, owners, presence.

Named queries of infra/sql. What Postgres says against them comes out as the producers'
errors: FleetUnavailable, NotMigrated.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import anyio.to_thread
import psycopg
from psycopg.rows import dict_row

from infra.sql import query

from ..sessions import Sessions

T = TypeVar("T")


class Database:
    """A few sessions, shared by all requests."""

    def __init__(self, postgres_url: str, answer_within: float) -> None:
        self._sessions = Sessions(postgres_url, answer_within)

    async def rows(self, name: str, /, *, reads: bool = False, **args: Any) -> list[dict[str, Any]]:
        """Rows of a named query; `reads`: it changes nothing, and may be sent twice."""
        return await anyio.to_thread.run_sync(partial(self.rows_now, name, reads=reads, **args))

    async def row(self, name: str, /, *, reads: bool = False, **args: Any) -> dict[str, Any] | None:
        """The first row, or None."""
        found = await self.rows(name, reads=reads, **args)
        return found[0] if found else None

    def rows_now(self, name: str, /, *, reads: bool = False, **args: Any) -> list[dict[str, Any]]:
        """As rows, from a thread."""

        def ask(conn: Any) -> list[dict[str, Any]]:
            with conn.cursor(row_factory=dict_row) as cursor:
                cursor.execute(query(name), args)
                return list(cursor.fetchall()) if cursor.description else []

        return self._sessions.run(ask, reads=reads)

    async def call(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """As run_now, off the event loop."""
        return await anyio.to_thread.run_sync(self.run_now, work)

    def run_now(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """What `work`, which only reads, gives on one of the sessions; from a thread."""
        return self._sessions.run(work, reads=True)

    def close(self) -> None:
        self._sessions.close()
