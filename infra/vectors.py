"""The tables by which LangGraph's store searches by meaning, of Postgres's extension pgvector.

Looked at before anything is made: a database without the extension is left as it was.
"""

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from langchain_core.embeddings import Embeddings
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.base import PostgresIndexConfig
from psycopg.rows import dict_row, tuple_row

from infra.errors import MigrationsMissing, VectorsUnavailable
from infra.sql import query

#: pgvector's indexes hold no longer vectors; without one it looks at each of them.
_INDEXED_DIMS = 2000


def index_config(
    dims: int,
    embed: Embeddings | Callable[[Sequence[str]], list[list[float]]],
    fields: list[str],
) -> PostgresIndexConfig:
    """LangGraph's configuration of such a store."""
    made: PostgresIndexConfig = {"dims": dims, "embed": embed, "fields": fields}
    if dims > _INDEXED_DIMS:
        made["ann_index_config"] = {"kind": "flat"}
    return made


def prepare(conn: psycopg.Connection[Any], dims: int) -> None:
    """Make the extension. Raises VectorsUnavailable where that can't be, or where the
    database has vectors of another length."""
    if _checked(conn, dims)[1]:
        return
    try:
        conn.execute(query("create_vector_extension"))
    except psycopg.errors.InsufficientPrivilege:
        raise VectorsUnavailable(
            "store.index needs Postgres's extension pgvector, and this user may not create it.",
            "Let a superuser run CREATE EXTENSION vector; in this database, then go on.",
        ) from None


def setup(conn: psycopg.Connection[Any], dims: int) -> None:
    """Make LangGraph's tables; not by several at once."""
    before, conn.row_factory = conn.row_factory, dict_row
    try:
        PostgresStore(conn, index=index_config(dims, _no_vectors, ["$"])).setup()
    finally:
        conn.row_factory = before


def require(conn: psycopg.Connection[Any], dims: int) -> None:
    """Raise MigrationsMissing or VectorsUnavailable where the store can't be searched so.
    Nothing is written."""
    if _checked(conn, dims)[2] is None:
        raise MigrationsMissing(
            "The graphs file has a store.index, and the database no table for its vectors.",
            "Run `fleet migrate`, then start again.",
        )


def _checked(conn: psycopg.Connection[Any], dims: int) -> tuple[bool, bool, int | None]:
    """The state, where neither the server nor the vectors that are there stand in the way."""
    available, installed, have = state = _state(conn)
    if have is not None and have != dims:
        raise VectorsUnavailable(
            f"store.index has dims {dims}, and this database's store holds vectors of {have}.",
            "Correct dims, or DROP TABLE store_vectors, vector_migrations and put what is to be "
            "found again anew.",
        )
    if not installed and not available:
        raise VectorsUnavailable(
            "store.index needs Postgres's extension pgvector, which this server does not have.",
            "Install it there (the image pgvector/pgvector has it), or take store.index out of "
            "the graphs file.",
        )
    return state


def _state(conn: psycopg.Connection[Any]) -> tuple[bool, bool, int | None]:
    """Whether the server has the extension, and the database; the dims of its vectors."""
    with conn.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(query("vector_state")).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def _no_vectors(texts: Sequence[str]) -> list[list[float]]:
    return []
