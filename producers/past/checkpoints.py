"""The checkpoints of a thread, as those who look at its past need them.

Read only, with LangGraph's own saver, and strictly: classes that a graph stored come out
as their plain data, no code of theirs is imported or run. So it works for graphs that
this checkout does not have, but for values that are stored as differences
(:mod:`producers.past.values`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from graphs.pending import pending_nodes
from graphs.stored import SERDE
from graphs.values import plain
from infra.postgres import connect

from ..client import Fleet
from ..errors import UnknownCheckpoint
from ..messages import checkpoint_thread_id
from ..names import check_text_name
from . import values
from .values import Values


def _silent(_: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Place:
    """Where to look. note: is told, in a sentence, of what can't be shown."""

    fleet: Fleet
    postgres_url: str
    note: Callable[[str], None] = _silent


def history(
    place: Place,
    thread_id: str,
    generation: int | None = None,
    *,
    before: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Checkpoints, oldest first: ``{"checkpoint_id", "subgraph", "at", "step", "source",
    "nodes", "changed", "next", …}``. subgraph: the nodes that lead to the one whose step it
    is, as ``"agent|model"``; nodes: those whose work it holds; changed: the values that it
    brought, by name; appended: of those that are lists which only grew, what came at their end;
    unknown: names of those that can't be told. before, limit: the newest so many of those before
    this checkpoint. Raises UnknownThread, UnknownCheckpoint for a checkpoint or a generation
    that there is not, InvalidKey.
    """
    if before is not None:
        before = check_text_name(before, "checkpoint_id")
    with _opened(place, thread_id, generation) as past:
        found = past.listed(before, limit)
        known = {_place(t): t for t in found}
        entries = [_entry(t, known.get(_before(t)) or past.parent(t), past.values) for t in found]
        past.tell_what_is_missing(entries)
    return entries


def snapshot(
    place: Place, thread_id: str, checkpoint_id: str, generation: int | None = None
) -> dict[str, Any]:
    """One checkpoint, of a subgraph too: as in :func:`history`, and all of its ``state``.

    Raises UnknownThread, UnknownCheckpoint, InvalidKey.
    """
    checkpoint_id = check_text_name(checkpoint_id, "checkpoint_id")
    with _opened(place, thread_id, generation) as past:
        found = past.one(checkpoint_id)
        state, unknown = past.values.read(found)
        entry = {**_entry(found, past.parent(found), past.values), "unknown": unknown}
        past.tell_what_is_missing([entry])
    return {"thread_id": past.name, **entry, "state": state}


@dataclass(frozen=True)
class _Past:
    """The checkpoints of one generation: name is our thread_id, thread LangGraph's."""

    name: str
    thread: str
    saver: PostgresSaver
    values: Values
    note: Callable[[str], None]

    def config(self, **more: str) -> Any:
        """Of all namespaces where none is named."""
        return {"configurable": {"thread_id": self.thread, **more}}

    def one(self, checkpoint_id: str) -> CheckpointTuple:
        """Raises UnknownCheckpoint."""
        found = next(self.saver.list(self.config(checkpoint_id=checkpoint_id)), None)
        if found is None:
            raise UnknownCheckpoint(
                f"{self.name} has no checkpoint {checkpoint_id}.",
                thread_id=self.name,
                checkpoint_id=checkpoint_id,
            )
        return found

    def listed(self, before: str | None, limit: int | None) -> list[CheckpointTuple]:
        """Oldest first. Raises UnknownCheckpoint."""
        end = self.one(before).config if before is not None else None
        return [*self.saver.list(self.config(), before=end, limit=limit)][::-1]

    def parent(self, found: CheckpointTuple) -> CheckpointTuple | None:
        """The one that it came from; None for the first one, and where it is not kept."""
        ns, before = _before(found)
        if not before:
            return None
        return self.saver.get_tuple(self.config(checkpoint_ns=ns, checkpoint_id=before))

    def tell_what_is_missing(self, entries: list[dict[str, Any]]) -> None:
        """Say that values are left out, and why."""
        if names := sorted({name for entry in entries for name in entry["unknown"]}):
            why = self.values.problem or "The graph has no such value any more."
            self.note(
                f"Not shown, since the graph has to be loaded for it: {', '.join(names)}. {why}"
            )


@contextmanager
def _opened(place: Place, thread_id: str, generation: int | None) -> Iterator[_Past]:
    """One generation's, the present one's by default."""
    status = place.fleet.status(thread_id)
    name = status.thread_id
    if generation is not None and generation > status.generation:
        raise UnknownCheckpoint(
            f"{name} has no generation {generation}: its newest is {status.generation}.",
            thread_id=name,
            generation=generation,
        )
    thread = checkpoint_thread_id(name, generation or status.generation)
    with connect(place.postgres_url, "fleet-history", row_factory=dict_row) as conn:
        saver = PostgresSaver(conn, serde=SERDE)
        yield _Past(name, thread, saver, Values(saver, status.graph), place.note)


def _place(found: CheckpointTuple) -> tuple[str, str]:
    return values.namespace(found), found.checkpoint["id"]


def _before(found: CheckpointTuple) -> tuple[str, str]:
    return values.namespace(found), _parent(found) or ""


def _parent(found: CheckpointTuple) -> str | None:
    return (found.parent_config or {}).get("configurable", {}).get("checkpoint_id")


def _entry(
    found: CheckpointTuple, before: CheckpointTuple | None, reader: Values
) -> dict[str, Any]:
    metadata: Mapping[str, Any] = found.metadata
    # What came before it may have been pruned: then nobody knows what it brought.
    cut = before is None and _parent(found) is not None
    state, unknown = ({}, []) if cut else reader.read(found)
    changed = {name: value for name, value in state.items() if _new(name, found, before)}
    entry: dict[str, Any] = {
        "checkpoint_id": found.checkpoint["id"],
        "subgraph": "|".join(values.path(found)) or None,
        "parent": _parent(found),
        "at": found.checkpoint["ts"],
        "step": metadata.get("step"),
        "source": metadata.get("source"),
        "nodes": [] if cut else _nodes(found, before),
        "changed": changed,
        "appended": _appended(changed, before, reader),
        "unknown": [name for name in unknown if _new(name, found, before)],
        "next": _next(found),
        "asks": [plain(w) for w in _written(found, "__interrupt__")],
        "failed": [str(w) for w in _written(found, "__error__")],
    }
    if _new("__end__", found, before):
        entry |= values.outcome(found)
    if amended := metadata.get("fleet_amended"):
        entry["amended"] = {"message_id": amended, "by": metadata.get("fleet_amended_by") or None}
    return entry


def _appended(
    changed: Mapping[str, Any], before: CheckpointTuple | None, reader: Values
) -> dict[str, list[Any]]:
    """The ends of lists that begin as they were before, by name."""
    lists = {name: value for name, value in changed.items() if isinstance(value, list)}
    if before is None or not lists:
        return {}
    old, _ = reader.read(before)
    return {name: end for name, value in lists.items() if (end := _end(old.get(name), value))}


def _end(old: Any, value: list[Any]) -> list[Any]:
    """What follows the old list; nothing where that was empty, since then all is new."""
    if isinstance(old, list) and old and value[: len(old)] == old:
        return value[len(old) :]
    return []


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
    stored = found.checkpoint["channel_values"]
    return sorted(pending_nodes(stored.keys(), stored.__getitem__))


def _written(found: CheckpointTuple, channel: str) -> list[Any]:
    return [value for _, name, value in found.pending_writes or () if name == channel]
