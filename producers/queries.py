"""The named queries of queries.sql, and the one way to run them."""

import json
import re
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg.rows import tuple_row

_NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^--|\Z)", re.MULTILINE | re.DOTALL)
_QUERIES = {
    name: cast(LiteralString, text.strip())
    for name, text in _NAMED.findall(
        Path(__file__).with_name("queries.sql").read_text(encoding="utf-8")
    )
}


def rows(conn: psycopg.Connection[Any], name: str, **params: Any) -> list[Any]:
    """Run a query that gives JSON as text; the values, one per row."""
    # A cursor of our own kind: the connection may be a caller's, with its row factory.
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(_QUERIES[name], params)
        return [json.loads(text) for (text,) in cursor.fetchall()]


def row(conn: psycopg.Connection[Any], name: str, **params: Any) -> Any:
    """As rows, for at most one row; None when there is none."""
    found = rows(conn, name, **params)
    return found[0] if found else None
