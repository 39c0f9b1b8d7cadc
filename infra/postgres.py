"""Connections to Postgres, as every process of the fleet opens them.

A session that cannot be trusted to die with its host would keep a thread locked, so
keepalives and ``tcp_user_timeout`` are set on both ends: a lost host is noticed within
20 seconds (G6).
"""

from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from infra.errors import PoolerRefused, PostgresUnavailable

#: Oldest server whose features we use (``pg_current_snapshot``, 64-bit advisory hashes).
MINIMUM_VERSION = 140000

# Seconds and counts; the server's side of the same promise.
_SERVER_OPTIONS = (
    "-c tcp_keepalives_idle=5 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3 "
    "-c tcp_user_timeout=15000 -c client_connection_check_interval=2000 "
    # Every statement of ours looks rows up by key: planning it anew each time is waste.
    "-c plan_cache_mode=force_generic_plan"
)


def connect(url: str, application_name: str, **kwargs: Any) -> psycopg.Connection[Any]:
    """Open a session in autocommit mode, named ``application_name`` in pg_stat_activity.

    Raises PostgresUnavailable when the server refuses, is too old or does not answer in 5 s,
    PoolerRefused when a pooler refuses the session's options.
    """
    try:
        conninfo = make_conninfo(
            url,
            application_name=application_name,
            connect_timeout=5,
            keepalives=1,
            keepalives_idle=5,
            keepalives_interval=3,
            keepalives_count=3,
            tcp_user_timeout=15000,
        )
        conn = psycopg.connect(
            conninfo, autocommit=True, options=_options(url), prepare_threshold=1, **kwargs
        )
    except psycopg.ProgrammingError as exc:
        raise PostgresUnavailable(
            f"The Postgres URL is not usable: {exc}.", "Correct FLEET_POSTGRES_URL."
        ) from exc
    except psycopg.OperationalError as exc:
        if "unsupported startup parameter" in str(exc):
            # PgBouncer's words, in either mode: options would reach one session of many.
            raise PoolerRefused(
                "The Postgres URL goes through a pooler that refuses our session's options; a "
                "transaction pooler could not hold our locks either.",
                "Give FLEET_POSTGRES_URL the server's own address.",
            ) from exc
        raise PostgresUnavailable(
            f"Postgres is not reachable: {_first_line(exc)}.",
            "Start it (for example with `fleet up`) or correct FLEET_POSTGRES_URL.",
        ) from exc
    if conn.info.server_version < MINIMUM_VERSION:
        conn.close()
        raise PostgresUnavailable(
            f"Postgres {conn.info.server_version // 10000} is too old.",
            "Use PostgreSQL 14 or later.",
        )
    return conn


def refuse_transaction_pooler(url: str) -> None:
    """Raise PoolerRefused when statements of one session reach different backends.

    Session advisory locks are the claim; through a transaction pooler they would stay
    behind in a backend that other sessions use.
    """
    first = connect(url, "fleet-check")
    second = connect(url, "fleet-check")
    try:
        with first.transaction(), second.transaction():
            busy = {_backend(first), _backend(second)}
        seen: set[int] = set()
        for _ in range(3):
            seen.add(_backend(first))
            with second.transaction():
                _backend(second)
                seen.add(_backend(first))
        if len(seen) > 1 or first.info.backend_pid not in busy:
            raise PoolerRefused(
                "The Postgres URL goes through a transaction pooler: session locks don't hold.",
                "Give FLEET_POSTGRES_URL the server's own address (or a pooler in session mode).",
            )
    finally:
        first.close()
        second.close()


def _backend(conn: psycopg.Connection[Any]) -> int:
    row = conn.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    return int(row[0])


def _options(url: str) -> str:
    given = str(psycopg.conninfo.conninfo_to_dict(url).get("options") or "")
    return f"{given} {_SERVER_OPTIONS}".strip()


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n")[0].rstrip(".")
