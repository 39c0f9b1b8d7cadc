"""A thread with what only the full package can read: the graph's state."""

from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from graphs.stored import SERDE

from ..messages import checkpoint_thread_id
from ..status import ThreadStatus
from .values import Values, outcome


def state_of(conn: psycopg.Connection[Any], status: ThreadStatus) -> dict[str, Any]:
    """``{"state"}``, the values of the latest checkpoint, {} before the first; and what an
    `@entrypoint` has returned, ``"result"``; names of values that only the graph tells,
    where it can't be loaded, ``"unknown"``."""
    thread = checkpoint_thread_id(status.thread_id, status.generation)
    try:
        saver = PostgresSaver(conn, serde=SERDE)
        found = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        if found is None:
            return {"state": {}}
        state, unknown = Values(saver, status.graph).read(found)
        told = {"state": state, **outcome(found)}
        return told | {"unknown": unknown} if unknown else told
    except psycopg.errors.UndefinedTable:
        return {"state": {}}
