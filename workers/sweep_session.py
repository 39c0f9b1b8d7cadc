"""The sweep's session: named queries, and the leader's lock, which goes with the session."""

import logging
from collections.abc import Callable
from typing import Any

import psycopg

from infra.postgres import connect
from infra.sql import query

log = logging.getLogger("fleet.sweeper")

#: How long a job waits for a row that somebody's open transaction holds. A turn's commit
#: takes less; a producer may keep its transaction open for as long as it likes.
_LOCK_TIMEOUT = "500ms"


class SweepSession:
    """Opened when it is first needed, and again after :meth:`drop`, which loses the lead."""

    def __init__(self, url: Callable[[], str], name: str) -> None:
        self._url = url
        self._name = name[:63]
        self._conn: psycopg.Connection[Any] | None = None
        self.leads = False

    def connection(self) -> psycopg.Connection[Any]:
        """The connection. Raises FleetError where there is none to be had."""
        if self._conn is None or self._conn.closed:
            self.leads = False
            self._conn = connect(self._url(), self._name)
            patience = {"name": "lock_timeout", "value": _LOCK_TIMEOUT}
            self._conn.execute(query("set_for_session"), patience)
        return self._conn

    def lead(self) -> bool:
        """Take the lead if nobody has it; whether this one has it now."""
        self.leads = bool(self.run("lead")[0][0])
        return self.leads

    def run(self, name: str, args: dict[str, Any] | None = None) -> list[Any]:
        """The rows of a named query. Raises FleetError, psycopg.Error."""
        cursor = self.connection().execute(query(name), args)
        return cursor.fetchall() if cursor.description else []

    def job(self, name: str, args: dict[str, Any] | None = None) -> list[Any] | None:
        """As run; None when a row it needs stays locked: left to another tick."""
        try:
            return self.run(name, args)
        except psycopg.errors.LockNotAvailable:
            log.warning("%s was skipped: an open transaction holds a row that it needs", name)
            return None

    def drop(self) -> None:
        """Close the connection and give up the lead."""
        self.leads = False
        if self._conn is not None:
            self._conn.close()
            self._conn = None
