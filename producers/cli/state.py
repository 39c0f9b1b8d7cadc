"""A thread with what only the full package can read: the graph's state and results.

Read only, and strictly: classes that a graph stored come out as their plain data, no
code of theirs is imported or run.
"""

import logging
from collections.abc import Mapping
from typing import Any

import psycopg
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from psycopg.rows import dict_row

from infra.postgres import connect

from ..client import Fleet
from ..messages import checkpoint_thread_id
from ..status import EffectRow, ThreadStatus
from ..surroundings import addresses
from .output import jsonable

# It warns of every class that it does not import, which is what we want of it.
logging.getLogger("langgraph.checkpoint").setLevel(logging.ERROR)
SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)


def thread_in_full(thread_id: str) -> dict[str, Any]:
    """What `fleet show` prints, as JSON holds it. Raises UnknownThread."""
    with Fleet() as fleet:
        status = fleet.status(thread_id)
    found = status.model_dump(mode="json")
    found |= _state(status)
    found["effects"] = [_effect(effect) for effect in status.effects]
    return found


def _state(status: ThreadStatus) -> dict[str, Any]:
    """``{"state"}``, the values of the latest checkpoint, {} before the first; and what an
    `@entrypoint` has returned, ``"result"``; names of values that only the graph tells,
    where it can't be loaded, ``"unknown"``."""
    from .values import Values, outcome

    postgres_url, _ = addresses(None, None)
    thread = checkpoint_thread_id(status.thread_id, status.generation)
    try:
        with connect(postgres_url, "fleet-show", row_factory=dict_row) as conn:
            saver = PostgresSaver(conn, serde=SERDE)
            found = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
            if found is None:
                return {"state": {}}
            state, unknown = Values(saver, status.graph).read(found)
            told = {"state": state, **outcome(found)}
            return told | {"unknown": unknown} if unknown else told
    except psycopg.errors.UndefinedTable:
        return {"state": {}}


def state_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a checkpoint's values that are the graph's state, as JSON holds them."""
    return {
        name: jsonable(value)
        for name, value in values.items()
        if not name.startswith(("__", "branch:", "join:"))
    }


def _effect(effect: EffectRow) -> dict[str, Any]:
    found = effect.model_dump(mode="json")
    if effect.stored is not None:
        try:
            found["result"] = jsonable(SERDE.loads_typed(effect.stored))
        except Exception as exc:
            found["result"] = f"(can't be read: {type(exc).__name__})"
    return found
