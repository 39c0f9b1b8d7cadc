"""``fleet migrate``: the fleet's migrations and functions, and LangGraph's own tables.

All of it runs under one advisory lock: LangGraph's ``setup()`` fails when several run at
once. Each migration is a transaction of its own; functions are made anew whenever their
text has changed.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.store.postgres import PostgresStore
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from infra.errors import MigrationsMissing
from infra.postgres import connect
from infra.sql import query, scripts, statement

#: Seconds between looks at whether another still migrates.
_PATIENCE = 0.1


def migrate(url: str, graphs: Iterable[Mapping[str, Any]] = ()) -> list[str]:
    """Bring the database up to date; give the names of what was applied.

    ``graphs``: ``{"graph", "queue", "input_schema"}`` of each registered graph, so that every
    door can refuse an unknown graph or a wrong input.
    """
    with connect(url, "fleet-migrate") as conn:
        _lock(conn)
        conn.execute(query("migrate_schema"))
        conn.execute(query("migrate_book"))
        applied = _apply_migrations(conn)
        conn.row_factory = dict_row
        PostgresSaver(conn).setup()
        PostgresStore(conn).setup()
        conn.row_factory = tuple_row
        applied += _apply_functions(conn)
        register_graphs(conn, graphs)
    return applied


def _lock(conn: psycopg.Connection[Any]) -> None:
    """Wait until no other migrates, without a statement that waits."""
    while (row := conn.execute(query("migrate_lock")).fetchone()) is None or not row[0]:
        time.sleep(_PATIENCE)


def register_graphs(conn: psycopg.Connection[Any], graphs: Iterable[Mapping[str, Any]]) -> None:
    """Make the graphs known to the doors; only what changed is written."""
    for entry in graphs:
        schema = entry["input_schema"]
        args = {**entry, "input_schema": None if schema is None else Jsonb(schema)}
        conn.execute(query("register_graph"), args)


def pending(conn: psycopg.Connection[Any]) -> list[str]:
    """Names of migrations and functions that the database lacks."""
    have = _applied(conn)
    missing = [name for name, _ in scripts("migrations") if name not in have]
    return missing + ([] if have.get("functions") == _functions_hash() else ["functions"])


def require_migrated(conn: psycopg.Connection[Any]) -> None:
    """Raise MigrationsMissing naming what is to be applied."""
    if names := pending(conn):
        raise MigrationsMissing(
            f"The database lacks {len(names)} migration(s): {', '.join(names)}.",
            "Run `fleet migrate`, then start again.",
        )


def _applied(conn: psycopg.Connection[Any]) -> dict[str, str]:
    with conn.cursor(row_factory=tuple_row) as cur:
        row = cur.execute(query("migrated_at_all")).fetchone()
        if row is None or not row[0]:
            return {}
        return dict(cur.execute(query("migrations_applied")).fetchall())


def _apply_migrations(conn: psycopg.Connection[Any]) -> list[str]:
    have = _applied(conn)
    new = [(name, text) for name, text in scripts("migrations") if name not in have]
    for name, text in new:
        with conn.transaction():
            conn.execute(statement(text))
            conn.execute(query("record_migration"), {"name": name, "hash": _hash(text)})
    return [name for name, _ in new]


def _apply_functions(conn: psycopg.Connection[Any]) -> list[str]:
    wanted = _functions_hash()
    if _applied(conn).get("functions") == wanted:
        return []
    with conn.transaction():
        for _, text in scripts("functions"):
            conn.execute(statement(text))
        conn.execute(query("record_migration"), {"name": "functions", "hash": wanted})
    return ["functions"]


def _functions_hash() -> str:
    return _hash("".join(text for _, text in scripts("functions")))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
