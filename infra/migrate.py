"""``fleet migrate``: the fleet's migrations and functions, and LangGraph's own tables.

All of it runs under one advisory lock: LangGraph's ``setup()`` fails when several run at
once. Each migration is a transaction of its own; functions are made anew whenever their
text has changed.

A migration is safe while workers of the release before run ("pre"), or its file is named
``….post.sql`` and waits for :func:`migrate_post`, which refuses while such workers are
alive. A database that is ahead of this code is left as it is: a release that is rolled back
works with it, unless a post migration that it does not know has been applied.
"""

import hashlib
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from infra import vectors
from infra.errors import DatabaseNewer, MigrationsMissing, OlderWorkers
from infra.postgres import connect
from infra.sql import query, scripts, statement

#: Seconds between looks at whether another still migrates, and until we say that we wait.
_PATIENCE, _SILENCE = 0.1, 1.0
#: How a script of functions makes a type anew.
_TYPE = re.compile(
    r"^DROP TYPE IF EXISTS (\S+) CASCADE;\nCREATE TYPE \1 AS \(.*?^\);$", re.MULTILINE | re.DOTALL
)
#: How a migration is named that old workers can't live with.
_POST = ".post.sql"


def migrate(
    url: str, graphs: Iterable[Mapping[str, Any]] = (), dims: int | None = None
) -> list[str]:
    """Bring the database up to date; give the names of what was applied.

    ``graphs``: ``{"graph", "queue", "input_schema", "sensitive"}`` of each registered graph, so
    that every door can refuse an unknown graph or a wrong input. ``dims``: of the vectors by
    which the graphs' store is searched, if it is.
    """
    with connect(url, "fleet-migrate") as conn:
        _lock(conn)
        if dims is not None:
            vectors.prepare(conn, dims)
        conn.execute(query("migrate_schema"))
        conn.execute(query("migrate_book"))
        applied: list[str] = []
        if not ahead(conn):
            applied = _apply(conn, [name for name in _known() if not name.endswith(_POST)])
            conn.row_factory = dict_row
            PostgresSaver(conn).setup()
            PostgresStore(conn).setup()
            conn.row_factory = tuple_row
            if dims is not None:
                vectors.setup(conn, dims)
            applied += _apply_functions(conn)
        register_graphs(conn, graphs)
    return applied


def migrate_post(url: str) -> list[str]:
    """Apply what old workers can't live with; give the names of what was applied.

    Raises OlderWorkers while workers are alive whose code does not know it, and
    MigrationsMissing where :func:`migrate` has not been run.
    """
    with connect(url, "fleet-migrate") as conn:
        _lock(conn)
        require_migrated(conn)
        names = left(conn)
        for name in names:
            _refuse_older_workers(conn, name)
        return _apply(conn, names)


def _refuse_older_workers(conn: psycopg.Connection[Any], migration: str) -> None:
    found = conn.execute(query("live_workers")).fetchall()
    if older := sorted(worker for worker, schema, _ in found if schema < migration):
        raise OlderWorkers(
            f"{migration} is not for workers of an older release, and {len(older)} of them "
            f"run: {', '.join(older)}.",
            f"Stop them; one that was killed counts for {found[0][2]:.0f} s. Then run it again.",
            workers=older,
        )


def _lock(conn: psycopg.Connection[Any]) -> None:
    """Wait until no other migrates, without a statement that waits; say so after a second."""
    begun, told = time.monotonic(), False
    while (row := conn.execute(query("migrate_lock")).fetchone()) is None or not row[0]:
        if not told and time.monotonic() - begun > _SILENCE:
            told = True
            _tell_who_holds(conn)
        time.sleep(_PATIENCE)


def _tell_who_holds(conn: psycopg.Connection[Any]) -> None:
    with conn.cursor(row_factory=tuple_row) as cursor:
        found = cursor.execute(query("migrate_holder")).fetchone()
    if found is None:
        return
    pid, name, address, seconds = found
    print(
        f"Another session migrates, and this one waits for it: backend {pid}"
        f" ({name or 'unnamed'}{f', from {address}' if address else ''}), connected for "
        f"{seconds:.0f} s. If it should not be there, end it: SELECT pg_terminate_backend({pid});",
        file=sys.stderr,
        flush=True,
    )


def register_graphs(conn: psycopg.Connection[Any], graphs: Iterable[Mapping[str, Any]]) -> None:
    """Make the graphs known to the doors; only what changed is written."""
    for entry in graphs:
        schema = entry["input_schema"]
        described = {"sensitive": False, **entry}
        args = {**described, "input_schema": None if schema is None else Jsonb(schema)}
        conn.execute(query("register_graph"), args)


def pending(conn: psycopg.Connection[Any]) -> list[str]:
    """Names of migrations and functions that the database lacks."""
    have = _applied(conn)
    missing = [name for name in _known() if name not in have and not name.endswith(_POST)]
    current = have.get("functions") == _functions_hash() or _unknown(have)
    return missing + ([] if current else ["functions"])


def left(conn: psycopg.Connection[Any]) -> list[str]:
    """Names of the post migrations that the database lacks."""
    have = _applied(conn)
    return [name for name in _known() if name not in have and name.endswith(_POST)]


def ahead(conn: psycopg.Connection[Any]) -> list[str]:
    """Names of migrations that the database has and this code does not know."""
    return _unknown(_applied(conn))


def newest() -> str:
    """The newest migration that this code knows: what a worker says of its release."""
    return _known()[-1]


def require_migrated(conn: psycopg.Connection[Any]) -> None:
    """Raise MigrationsMissing naming what is to be applied."""
    if names := pending(conn):
        raise MigrationsMissing(
            f"The database lacks {len(names)} migration(s): {', '.join(names)}.",
            "Run `fleet migrate`, then start again.",
        )
    if beyond := [name for name in ahead(conn) if name.endswith(_POST)]:
        raise DatabaseNewer(
            f"The database has {', '.join(beyond)}, which this older release can't work with.",
            "Start the release that brought it, or a newer one.",
        )


def _applied(conn: psycopg.Connection[Any]) -> dict[str, str]:
    with conn.cursor(row_factory=tuple_row) as cur:
        row = cur.execute(query("migrated_at_all")).fetchone()
        if row is None or not row[0]:
            return {}
        return dict(cur.execute(query("migrations_applied")).fetchall())


def _known() -> list[str]:
    return [name for name, _ in scripts("migrations")]


def _unknown(have: Mapping[str, str]) -> list[str]:
    return sorted(name for name in have.keys() - {*_known()} if name.endswith(".sql"))


def _apply(conn: psycopg.Connection[Any], names: list[str]) -> list[str]:
    have = _applied(conn)
    new = [(n, text) for n, text in scripts("migrations") if n in names and n not in have]
    for name, text in new:
        with conn.transaction():
            conn.execute(statement(text))
            conn.execute(query("record_migration"), {"name": name, "hash": _hash(text)})
    return [name for name, _ in new]


def _apply_functions(conn: psycopg.Connection[Any]) -> list[str]:
    wanted = _functions_hash()
    have = _applied(conn)
    if have.get("functions") == wanted:
        return []
    with conn.transaction():
        for _, text in scripts("functions"):
            conn.execute(statement(_without_known_types(text, have)))
            for made in _TYPE.finditer(text):
                args = {"name": f"type {made[1]}", "hash": _hash(made[0])}
                conn.execute(query("record_migration"), args)
        conn.execute(query("record_migration"), {"name": "functions", "hash": wanted})
    return ["functions"]


def _without_known_types(text: str, have: Mapping[str, str]) -> str:
    """The script, but for types that the database has just so: running workers would stumble
    over new ones of the same name."""

    def kept(made: re.Match[str]) -> str:
        return "" if have.get(f"type {made[1]}") == _hash(made[0]) else made[0]

    return _TYPE.sub(kept, text)


def _functions_hash() -> str:
    return _hash("".join(text for _, text in scripts("functions")))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
