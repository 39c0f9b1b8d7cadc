"""Sessions on the fleet's Postgres, shared by the threads of a producer's process.

A few connections, opened when needed. One that the server closed while it was idle is
replaced and the work repeated once: all that is done here may be done twice (a message is
known by its message_id, and what an operator has changed is changed once). One that Postgres
leaves without an answer is given up (`patience`). What Postgres says comes out as ProducerError.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict

from .errors import FleetUnavailable, NotConfigured, NotMigrated, OutcomeUnknown, ProducerError
from .forks import remade_after_fork
from .patience import ANSWER_WITHIN, NoAnswer, PatientConnection

T = TypeVar("T")

#: Seconds to reach a server; libpq tries each address of a host name.
CONNECT_TIMEOUT = 5
MAX_SESSIONS = 4

_NOT_MIGRATED = (
    pg.InvalidSchemaName,
    pg.UndefinedTable,
    pg.UndefinedFunction,
    pg.UndefinedColumn,
    pg.UndefinedObject,
)
_TRY_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
# A duplicate key: fleet.accept looks before it writes, but a transaction of the caller's in
# REPEATABLE READ looks at what was there when it began.
_COLLIDED = (*_TRY_AGAIN, pg.UniqueViolation)
#: By class of SQLSTATE or the whole of it: what Postgres did, and what to do.
_SAID = {
    "40": ("Postgres undid it for another transaction", "Nothing was accepted; try again."),
    "53100": (
        "The disk of the database is full",
        "Nothing was accepted; try again when its operator has made room.",
    ),
    "53": ("Postgres is out of resources", "Nothing was accepted; its operator has to help first."),
    "54": ("A limit of Postgres was met", "Nothing was accepted."),
    "55": ("Postgres is not ready for it", "Nothing was accepted; try again."),
    "57014": (
        "Postgres cancelled the statement",
        "Nothing was accepted; try again, with a longer statement_timeout if one is set.",
    ),
    "58": ("Postgres has trouble with its disk or system", "Nothing was accepted; see its log."),
}


class Sessions:
    """Run work on a session: `run(work)` calls `work(connection)`, in autocommit mode.

    answer_within: seconds that Postgres has for each statement, and a caller for a session.
    most: sessions at a time.
    """

    def __init__(
        self, url: str, answer_within: float = ANSWER_WITHIN, most: int = MAX_SESSIONS
    ) -> None:
        self._url = url
        self._most = most
        self._answer_within = answer_within
        self._closed = False
        self._inherited: list[psycopg.Connection[Any]] = []
        self._idle: list[psycopg.Connection[Any]] = []
        self._start_afresh()
        remade_after_fork(self)

    def _start_afresh(self) -> None:
        # In a forked child the parent's sockets are not ours, not even to close.
        self._inherited += self._idle
        self._idle = []
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(self._most)

    def run(
        self,
        work: Callable[[psycopg.Connection[Any]], T],
        *,
        reads: bool = False,
        message_id: str | None = None,
    ) -> T:
        """What `work` gives; `reads`: it changes nothing; `message_id`: of the one it sends.

        Raises FleetUnavailable, for work that may have been done OutcomeUnknown,
        NotMigrated, and what `work` raises.
        """
        free = self._free
        if not free.acquire(timeout=self._answer_within):
            raise FleetUnavailable(
                f"None of this client's {self._most} sessions has become free within "
                f"{self._answer_within:g} s: others wait for Postgres on them."
            )
        try:
            return self._run(work, reads)
        except OutcomeUnknown as unknown:
            if message_id is not None:
                unknown.name_message(message_id)
            raise
        finally:
            free.release()

    def _run(self, work: Callable[[psycopg.Connection[Any]], T], reads: bool) -> T:
        lost = False
        for last in (False, True):
            try:
                conn = self._take(anew=last)
            except psycopg.Error as exc:
                raise _uncertain(exc) if lost and not reads else meaning(exc) from exc
            try:
                return work(conn)
            except NoAnswer as exc:
                # Not once more: the caller has waited long enough.
                self._drop_idle()
                raise self._unanswered(reads) from exc
            except psycopg.Error as exc:
                lost = lost or bool(conn.closed)
                if last or not (conn.closed or isinstance(exc, _TRY_AGAIN)):
                    raise _uncertain(exc) if lost and not reads else meaning(exc) from exc
            finally:
                self._give_back(conn)
        raise AssertionError("the second attempt returns or raises")

    def _unanswered(self, reads: bool) -> ProducerError:
        said = f"Postgres can't be reached: it has not answered for {self._answer_within:g} s."
        if reads:
            return FleetUnavailable(said, "Nothing was changed; try again when Postgres answers.")
        return OutcomeUnknown(said)

    def _take(self, *, anew: bool) -> psycopg.Connection[Any]:
        with self._lock:
            if self._closed:
                raise RuntimeError("This Fleet is closed.")
            if self._idle and not anew:
                return self._idle.pop()
        # Where one has gone, those of the same age have too.
        if anew:
            self._drop_idle()
        return self._connect()

    def _drop_idle(self) -> None:
        with self._lock:
            gone, self._idle = self._idle, []
        for conn in gone:
            conn.close()

    def _give_back(self, conn: psycopg.Connection[Any]) -> None:
        idle = conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            if idle and not self._closed:
                self._idle.append(conn)
                return
        conn.close()

    def _connect(self) -> psycopg.Connection[Any]:
        given = _parsed(self._url)
        # No prepared statements: services often sit behind a transaction pooler.
        conn = PatientConnection.connect(
            self._url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=int(given.get("connect_timeout") or CONNECT_TIMEOUT),
            application_name=str(given.get("application_name") or "fleet-client"),
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=3,
            keepalives_count=3,
            tcp_user_timeout=15000,
        )
        conn.answer_within = self._answer_within
        return conn

    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._drop_idle()


def _parsed(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.ProgrammingError:
        # Its text repeats the address, with the password.
        raise NotConfigured(
            "The Postgres address can't be read.",
            "It looks like postgresql://user:password@host:5432/database.",
        ) from None


@contextmanager
def translated() -> Iterator[None]:
    """For a connection of the caller's: what Postgres says, as what it means."""
    try:
        yield
    except psycopg.Error as exc:
        if isinstance(exc, _COLLIDED):
            raise FleetUnavailable(
                f"Another transaction was ahead of this one: {first_line(exc)}.",
                "Nothing was accepted: roll back, and run the whole transaction again.",
            ) from exc
        raise meaning(exc) from exc


def meaning(exc: psycopg.Error) -> ProducerError:
    """What an error of Postgres means to a producer; nothing was accepted then."""
    said = first_line(exc)
    if isinstance(exc, _NOT_MIGRATED):
        return NotMigrated(f"The database lacks the fleet's tables or functions: {said}.")
    if isinstance(exc, pg.LockNotAvailable):
        return FleetUnavailable(
            "Another producer's open transaction holds this thread's mailbox.",
            "Nothing was accepted; try again when that transaction has ended.",
        )
    state = exc.sqlstate or ""
    if known := _SAID.get(state) or _SAID.get(state[:2]):
        return FleetUnavailable(f"{known[0]}: {said}.", known[1])
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        return FleetUnavailable(f"Postgres can't be reached: {said}.")
    return FleetUnavailable(f"Postgres refused: {said}.", "Nothing was accepted.")


def _uncertain(exc: psycopg.Error) -> ProducerError:
    """The connection went while Postgres may have been committing."""
    return OutcomeUnknown(f"The connection to Postgres was lost: {first_line(exc)}.")


def first_line(exc: BaseException) -> str:
    lines = str(exc).strip().splitlines()
    return (lines[0] if lines else type(exc).__name__).rstrip(".")
