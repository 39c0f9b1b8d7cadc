"""Connections to Postgres, as every process of the fleet opens them.

A session that cannot be trusted to die with its host would keep a thread locked, so
keepalives and ``tcp_user_timeout`` are set on both ends: a lost host is noticed within
20 seconds (G6).

A forked child lets go of its parent's sessions without a word to the server: its copy of a
socket would keep a session alive, and a thread locked, after the parent was killed.

A pooler in session mode keeps a session to one backend and is accepted; it does not pass
on the options that a session starts with, so they are set in the session then. Poolers in
transaction or statement mode are refused: a session's locks would stay behind in a
backend that others use.
"""

import os
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar, overload

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from infra.errors import PoolerRefused, PostgresUnavailable
from infra.sql import query

#: Oldest server whose features we use (``pg_current_snapshot``, 64-bit advisory hashes).
MINIMUM_VERSION = 140000

# Seconds and counts; the server's side of the same promise.
_SETTINGS = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "client_connection_check_interval": "2000",
    # Every statement of ours looks rows up by key: planning it anew each time is waste.
    "plan_cache_mode": "force_generic_plan",
}
#: URLs behind which session poolers were found.
_session_poolers: set[str] = set()
#: Those of this process.
_sessions: "weakref.WeakSet[psycopg.Connection[Any]]" = weakref.WeakSet()


_Kind = TypeVar("_Kind", bound=psycopg.Connection[Any])


@overload
def connect(url: str, application_name: str, **kwargs: Any) -> psycopg.Connection[Any]: ...
@overload
def connect(url: str, application_name: str, kind: type[_Kind], **kwargs: Any) -> _Kind: ...
def connect(
    url: str,
    application_name: str,
    kind: type[psycopg.Connection[Any]] = psycopg.Connection,
    **kwargs: Any,
) -> psycopg.Connection[Any]:
    """Open a session in autocommit mode, named ``application_name`` in pg_stat_activity.

    kind: of the connection. kwargs: psycopg's.
    Raises PostgresUnavailable when the server refuses, is too old or does not answer in 5 s,
    PoolerRefused when a session would not keep to one backend.
    """
    kwargs["kind"] = kind
    conn = None
    if url not in _session_poolers:
        conn = _open_with_options(url, application_name, **kwargs)
    if conn is None:
        # A pooler. In transaction mode what we set would reach sessions of others.
        if url not in _session_poolers:
            refuse_transaction_pooler(url)
            _session_poolers.add(url)
        conn = _open(url, application_name, "", **kwargs)
        with _closed_on_failure(conn):
            for name, value in _SETTINGS.items():
                _first(conn, "set_for_session", {"name": name, "value": value})
    return conn


def refuse_transaction_pooler(url: str) -> None:
    """Raise PoolerRefused when statements of one session reach different backends.

    Without transactions, which a pooler in statement mode refuses, and never waiting for
    one session while another holds a backend: a pool may have just one.
    """
    with (
        closing(_open(url, "fleet-check", "")) as first,
        closing(_open(url, "fleet-check", "")) as second,
    ):
        # In turns: whether the pool gives out the backend used last or the one free the
        # longest, two sessions meet or one of them moves.
        seen: dict[int, set[int]] = {id(first): set(), id(second): set()}
        for conn in (first, second, second, first, first, second):
            seen[id(conn)].add(int(_first(conn, "backend_pid")))
        if seen[id(first)] & seen[id(second)] or any(len(pids) > 1 for pids in seen.values()):
            raise PoolerRefused(
                "The Postgres URL goes through a transaction pooler: session locks don't hold.",
                "Give FLEET_POSTGRES_URL the server's own address (or a pooler in session mode).",
            )


def _open_with_options(
    url: str, application_name: str, **kwargs: Any
) -> psycopg.Connection[Any] | None:
    """A session with our settings; None when something between us and the server takes none."""
    options = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
    try:
        conn = _open(url, application_name, options, **kwargs)
    except PostgresUnavailable as exc:
        # PgBouncer's words, in every mode.
        if "unsupported startup parameter" in exc.message:
            return None
        # A server so old that it does not know one of them: what it is says its version.
        if any(name in exc.message for name in _SETTINGS):
            _open(url, application_name, "", **kwargs).close()
        raise
    # Or it was told to ignore them.
    with _closed_on_failure(conn):
        if _first(conn, "session_setting", {"name": "plan_cache_mode"}) == "force_generic_plan":
            return conn
    conn.close()
    return None


def _open(
    url: str,
    application_name: str,
    options: str,
    kind: type[psycopg.Connection[Any]] = psycopg.Connection,
    **kwargs: Any,
) -> psycopg.Connection[Any]:
    try:
        given = str(conninfo_to_dict(url).get("options") or "")
        conninfo = make_conninfo(
            url,
            application_name=application_name,
            connect_timeout=5,
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=3,
            keepalives_count=3,
            tcp_user_timeout=15000,
            options=f"{given} {options}".strip() or None,
        )
        conn = kind.connect(conninfo, autocommit=True, prepare_threshold=1, **kwargs)
        _sessions.add(conn)
    except psycopg.ProgrammingError:
        # Its text repeats the URL, with the password.
        raise PostgresUnavailable(
            "The Postgres URL is not usable.", "Correct FLEET_POSTGRES_URL."
        ) from None
    except psycopg.OperationalError as exc:
        raise _unreachable(exc) from exc
    if (version := conn.info.server_version) < MINIMUM_VERSION:
        conn.close()
        raise PostgresUnavailable(
            f"Postgres {version // 10000} is too old.",
            "Use PostgreSQL 14 or later.",
        )
    return conn


@contextmanager
def _closed_on_failure(conn: psycopg.Connection[Any]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        conn.close()
        raise


def _unreachable(exc: psycopg.Error) -> PostgresUnavailable:
    return PostgresUnavailable(
        f"Postgres is not reachable: {_first_line(exc)}.",
        "Start it (for example with `fleet up`) or correct FLEET_POSTGRES_URL.",
    )


def _first(conn: psycopg.Connection[Any], name: str, args: dict[str, str] | None = None) -> Any:
    """The first column of a named query's only row. Raises PostgresUnavailable."""
    try:
        with conn.cursor(row_factory=tuple_row) as cursor:
            row = cursor.execute(query(name), args, prepare=False).fetchone()
    except psycopg.Error as exc:
        raise _unreachable(exc) from exc
    assert row is not None
    return row[0]


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n")[0].rstrip(".")


def _let_go() -> None:
    """In a forked child. What it says to its copies goes nowhere, a goodbye too."""
    null = os.open(os.devnull, os.O_RDWR)
    for conn in list(_sessions):
        with suppress(psycopg.Error, OSError):
            if not conn.closed:
                os.dup2(null, conn.fileno(), inheritable=False)
    os.close(null)
    _sessions.clear()


os.register_at_fork(after_in_child=_let_go)
