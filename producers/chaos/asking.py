"""Questions to a Postgres that may be away: an answer, or none."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from infra.errors import FleetError
from infra.postgres import connect
from infra.sql import query


class Asking:
    """One session of its own, opened anew when it was lost. For one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._conn: psycopg.Connection[Any] | None = None

    def __call__(self, name: str, **args: Any) -> list[tuple[Any, ...]] | None:
        """Rows of a named query; None where Postgres is away just now."""
        try:
            with self.session() as conn:
                return conn.execute(query(name), args).fetchall()
        except (psycopg.Error, FleetError):
            self.close()
            return None

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """The session itself. Raises what Postgres says."""
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._url, "fleet-chaos")
        yield self._conn

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None
