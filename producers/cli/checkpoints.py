"""The checkpoints of a thread, as the commands that look at its past need them.

Read only, with LangGraph's own saver, and strictly: classes that a graph stored come out
as their plain data, no code of theirs is imported or run. So it works for graphs that
this checkout does not have.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from graphs.pending import pending_nodes
from infra.postgres import connect

from ..client import Fleet
from ..errors import UnknownCheckpoint
from ..messages import checkpoint_thread_id
from ..names import check_text_name
from ..surroundings import addresses
from .output import jsonable
from .state import SERDE, state_values


def history(thread_id: str, generation: int | None = None) -> list[dict[str, Any]]:
    """Every checkpoint, oldest first: ``{"checkpoint_id", "at", "step", "source", "nodes",
    "changed", "next", …}``. nodes: those whose work it holds; changed: the values that it
    brought, by name. Raises UnknownThread.
    """
    with _saver(thread_id, generation) as (saver, thread, _):
        found = [*saver.list(_config(thread))][::-1]
    known = {t.checkpoint["id"]: t for t in found}
    return [_entry(t, known.get(_parent(t) or "")) for t in found]


def snapshot(thread_id: str, checkpoint_id: str, generation: int | None = None) -> dict[str, Any]:
    """One checkpoint: as in :func:`history`, and all of its ``state``.

    Raises UnknownThread, UnknownCheckpoint.
    """
    checkpoint_id = check_text_name(checkpoint_id, "checkpoint_id")
    with _saver(thread_id, generation) as (saver, thread, name):
        found = saver.get_tuple(_config(thread, checkpoint_id))
        if found is None:
            raise UnknownCheckpoint(
                f"{name} has no checkpoint {checkpoint_id}.",
                thread_id=name,
                checkpoint_id=checkpoint_id,
            )
        before = _parent(found)
        parent = saver.get_tuple(_config(thread, before)) if before else None
    return {
        "thread_id": name,
        **_entry(found, parent),
        "state": state_values(found.checkpoint["channel_values"]),
    }


@contextmanager
def _saver(thread_id: str, generation: int | None) -> Iterator[tuple[PostgresSaver, str, str]]:
    """(saver, LangGraph's thread_id, ours) of one generation, the present one by default."""
    with Fleet() as fleet:
        status = fleet.status(thread_id)
    thread = checkpoint_thread_id(status.thread_id, generation or status.generation)
    with connect(addresses(None, None)[0], "fleet-history", row_factory=dict_row) as conn:
        yield PostgresSaver(conn, serde=SERDE), thread, status.thread_id


def _config(thread: str, checkpoint_id: str | None = None) -> Any:
    named = {"checkpoint_id": checkpoint_id} if checkpoint_id else {}
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **named}}


def _parent(found: CheckpointTuple) -> str | None:
    return (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")


def _entry(found: CheckpointTuple, before: CheckpointTuple | None) -> dict[str, Any]:
    metadata: Mapping[str, Any] = found.metadata
    # What came before it may have been pruned: then nobody knows what it brought.
    cut = before is None and _parent(found) is not None
    values = found.checkpoint["channel_values"]
    entry: dict[str, Any] = {
        "checkpoint_id": found.checkpoint["id"],
        "parent": _parent(found),
        "at": found.checkpoint["ts"],
        "step": metadata.get("step"),
        "source": metadata.get("source"),
        "nodes": [] if cut else _nodes(found, before),
        "changed": state_values(
            {n: v for n, v in values.items() if not cut and _new(n, found, before)}
        ),
        "next": _next(found),
        "asks": [jsonable(w) for w in _written(found, "__interrupt__")],
        "failed": [str(w) for w in _written(found, "__error__")],
    }
    if amended := metadata.get("fleet_amended"):
        entry["amended"] = {"message_id": amended, "by": metadata.get("fleet_amended_by") or None}
    return entry


def _nodes(found: CheckpointTuple, before: CheckpointTuple | None) -> list[str]:
    """The nodes that have seen more than at the checkpoint before."""
    if as_node := found.metadata.get("fleet_amended_as"):
        return [str(as_node)]
    old = before.checkpoint["versions_seen"] if before else {}
    return sorted(
        name
        for name, seen in found.checkpoint["versions_seen"].items()
        if seen and seen != old.get(name) and not name.startswith("__")
    )


def _new(name: str, found: CheckpointTuple, before: CheckpointTuple | None) -> bool:
    old = before.checkpoint["channel_versions"] if before else {}
    return found.checkpoint["channel_versions"].get(name) != old.get(name)


def _next(found: CheckpointTuple) -> list[str]:
    """The nodes at which it stands."""
    values = found.checkpoint["channel_values"]
    return sorted(pending_nodes(values.keys(), values.__getitem__))


def _written(found: CheckpointTuple, channel: str) -> list[Any]:
    return [value for _, name, value in found.pending_writes or () if name == channel]
