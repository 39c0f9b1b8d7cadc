"""Postgres: reached, straight, new enough, durable, migrated, in time and of a bearable size."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from infra.errors import FleetError, PoolerRefused
from infra.migrate import ahead, left, pending
from infra.postgres import connect, refuse_transaction_pooler
from infra.sql import query

from .finding import Finding, note, ok, problem, warning

#: Seconds that the host's clock and the database's may be apart.
CLOCK_WARNING, CLOCK_PROBLEM = 1.0, 5.0
GIB = 1 << 30
#: Bytes of a table with its indexes.
LARGE, TOO_LARGE = 20 * GIB, 200 * GIB
#: Dead rows of a table that has this many times fewer living ones.
BLOATED, FEW = 4, 100_000
#: Of the sessions that the server takes.
NEARLY_FULL = 0.85

Connection = psycopg.Connection[Any]


def look(url: str, *, before_deploy: bool = False) -> Iterator[Finding]:
    """All checks; only the first where Postgres can't be used."""
    try:
        refuse_transaction_pooler(url)
        conn = connect(url, "fleet-doctor")
    except PoolerRefused as exc:
        yield problem("direct connection", exc.message, exc.hint)
        return
    except FleetError as exc:
        yield problem("postgres", exc.message, exc.hint)
        return
    with contextlib.closing(conn):
        yield from _server(conn)
        yield ok("direct connection", "A session keeps to one backend of the server.")
        yield clock(*_clocks(conn))
        yield sessions(*_rows(conn, "sessions")[0])
        yield _migrations(conn, before_deploy)
        with contextlib.suppress(
            psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName
        ):
            yield _moved_clock(conn)
        yield checkpoints([schema for (schema,) in _rows(conn, "checkpoint_schemas")])
        yield sizes(_rows(conn, "table_sizes"))


def _rows(conn: Connection, name: str) -> list[Any]:
    with conn.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(query(name)).fetchall()


def _server(conn: Connection) -> Iterator[Finding]:
    # Too old a server was refused by connect().
    version, fsync, synchronous, replica = _rows(conn, "server_facts")[0]
    yield ok("postgres", f"PostgreSQL {version.split()[0]} answers.", version=version)
    if replica:
        yield problem(
            "durability",
            "The server is a replica: nothing can be written there.",
            "Give FLEET_POSTGRES_URL the primary's address.",
        )
    elif not fsync or synchronous == "off":
        yield problem(
            "durability",
            "The server says committed before it is on disk: a power cut loses what was accepted, "
            "and effects that have happened.",
            "Set fsync = on and synchronous_commit = on.",
            fsync=fsync,
            synchronous_commit=synchronous,
        )
    else:
        yield ok("durability", "What is committed is on disk.")


def _clocks(conn: Connection) -> tuple[float, float]:
    """Seconds that this host is ahead of the server, and how sure that is; best of three."""
    looks = []
    for _ in range(3):
        before = time.time()
        (there,) = _rows(conn, "server_clock")[0]
        after = time.time()
        looks.append(((after - before) / 2, (before + after) / 2 - there))
    unsure, apart = min(looks)
    return apart, unsure


def clock(apart: float, unsure: float) -> Finding:
    """apart: seconds that this host is ahead of the server, give or take unsure."""
    data = {"seconds": round(apart, 3), "give_or_take": round(unsure, 3)}
    surely = max(abs(apart) - unsure, 0.0)
    direction = "ahead of" if apart > 0 else "behind"
    said = f"This host's clock is {abs(apart):.1f} s {direction} the database's."
    fix = "Let both keep time by NTP (chrony, systemd-timesyncd)."
    if surely > CLOCK_PROBLEM:
        return problem("clock", said, fix, **data)
    if surely > CLOCK_WARNING:
        return warning("clock", said, fix, **data)
    return ok("clock", "This host's clock and the database's agree.", **data)


def _moved_clock(conn: Connection) -> Finding:
    (moved,) = _rows(conn, "moved_clock")[0]
    if abs(moved) < CLOCK_WARNING:
        return ok("fleet clock", "The fleet's clock is the server's.")
    return problem(
        "fleet clock",
        f"The fleet's clock was moved by {moved:.0f} s, as tests do.",
        "Run `SELECT fleet.move_clock('0')` in the database.",
        seconds=moved,
    )


def sessions(open_: int, most: int) -> Finding:
    """Each slot has a session, and each worker two more."""
    said = f"{open_} of {most} sessions of the server are open."
    if open_ < NEARLY_FULL * most:
        return ok("sessions", said, open=open_, most=most)
    return warning(
        "sessions", said, "Raise max_connections, or run fewer slots.", open=open_, most=most
    )


def _migrations(conn: Connection, before_deploy: bool) -> Finding:
    if names := pending(conn):
        said = f"The database lacks migrations: {', '.join(names)}."
        if before_deploy:
            fix = "Run `fleet migrate` of this release before its workers start."
            return warning("migrations", said, fix, pending=names)
        return problem("migrations", said, "Run `fleet migrate`.", pending=names)
    if beyond := ahead(conn):
        return note(
            "migrations",
            f"The database is of a newer release: {', '.join(beyond)}.",
            "Deploy that release here too.",
            ahead=beyond,
        )
    if names := left(conn):
        return note(
            "migrations",
            f"Waiting for the last workers of the release before: {', '.join(names)}.",
            "Run `fleet migrate --post` when they are gone.",
            post=names,
        )
    return ok("migrations", "None is missing.")


def checkpoints(schemas: list[str]) -> Finding:
    """LangGraph's tables are found through the search path, which a user may change."""
    if len(schemas) < 2:
        return ok("checkpoints", "LangGraph's tables are there once.", schemas=schemas)
    return warning(
        "checkpoints",
        f"LangGraph's tables are there more than once, in the schemas {', '.join(schemas)}: "
        "processes of different Postgres users see different ones.",
        "Let all processes use one user, or put options=-csearch_path%3DSCHEMA into every "
        "FLEET_POSTGRES_URL. Those of another application are none of the fleet's.",
        schemas=schemas,
    )


def sizes(tables: list[tuple[str, int, int, int, int]]) -> Finding:
    """(name, bytes, rows, living, dead) of each table, the largest first."""
    data = {"tables": [{"table": t, "bytes": b, "rows": r} for t, b, r, _, _ in tables]}
    for limit, make in ((TOO_LARGE, problem), (LARGE, warning)):
        if large := [f"{t} {b / GIB:.0f} GiB" for t, b, *_ in tables if b >= limit]:
            return make(
                "table sizes",
                f"Large tables: {', '.join(large)}.",
                "Set how long things are kept (docs/data.md), and run `fleet prune`.",
                **data,
            )
    if bloated := [t for t, _, _, living, dead in tables if dead > max(BLOATED * living, FEW)]:
        return warning(
            "table sizes",
            f"Mostly dead rows: {', '.join(bloated)}.",
            "See that autovacuum runs, and that no transaction stays open for hours.",
            **data,
        )
    total = sum(size for _, size, *_ in tables)
    largest = f"; the largest, {tables[0][0]}, {_size(tables[0][1])}" if tables else ""
    return ok("table sizes", f"All tables {_size(total)}{largest}.", **data)


def _size(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / (1 << 20):.1f} MiB"
