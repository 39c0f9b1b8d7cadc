"""Where a thread stands: the nodes that come next, from its newest checkpoint."""

from collections.abc import Callable
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver

from graphs.pending import pending_nodes
from graphs.stored import SERDE

from ..names import checkpoint_thread_id
from ..status import ThreadStatus


def next_nodes(thread: ThreadStatus) -> Callable[[psycopg.Connection[Any]], list[str]]:
    """Reads them: [] before the first checkpoint and after the last node."""
    name = checkpoint_thread_id(thread.thread_id, thread.generation)

    def read(conn: psycopg.Connection[Any]) -> list[str]:
        try:
            saver = PostgresSaver(conn, serde=SERDE)
            found = saver.get_tuple({"configurable": {"thread_id": name, "checkpoint_ns": ""}})
        except psycopg.errors.UndefinedTable:
            return []
        if found is None:
            return []
        stored = found.checkpoint["channel_values"]
        return sorted(pending_nodes(stored.keys(), stored.__getitem__))

    return read
