"""What stands against an amendment: a person's word that a node's work was done by hand.

Pure: the worker that would write it and the command line that sends it ask the same.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.constants import START
from langgraph.graph.state import CompiledStateGraph

from graphs import request_ids
from graphs.registry import RegisteredGraph


@dataclass(frozen=True, slots=True)
class SeenEffect:
    """An effect of the step at which the thread stands. state: as in the ledger."""

    name: str
    state: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a thread stands.

    tasks: (node, task id) of all tasks of the pending step, finished ones too; a node that
    the graph has lost is not among them. effects: those that the pending step has begun.
    """

    thread_id: str
    generation: int
    tasks: tuple[tuple[str, str], ...]
    effects: tuple[SeenEffect, ...]


def nodes_of(graph: RegisteredGraph) -> list[str]:
    """Names that an amendment may give as its node."""
    return sorted(str(name) for name in graph.graph.nodes if name != START)


def unfit(graph: RegisteredGraph, as_node: str, values: Mapping[str, Any]) -> str | None:
    """Why no thread of the graph can take this amendment, or None."""
    nodes = nodes_of(graph)
    if as_node not in nodes:
        return f"graph {graph.name} has no node {as_node!r}: {_close(as_node, nodes)}"
    known = _state_names(graph)
    unknown = sorted(values.keys() - known) if known else []
    if unknown:
        return (
            f"the state of graph {graph.name} has no {', '.join(map(repr, unknown))}: "
            f"{_close(unknown[0], sorted(known))}"
        )
    return None


def refused(as_node: str, standing: Standing | None) -> str | None:
    """Why the thread can't take it as it stands, or None. None for a thread without state."""
    if standing is None:
        return "the thread has no state yet that could be amended"
    for effect in standing.effects:
        if effect.state == "intent":
            return (
                f"effect {effect.name} ({effect.request_id}) of the step at which the thread "
                "stands is in doubt and would be forgotten: say what became of it with "
                "`fleet resolve` first"
            )
    names = [name for name, _ in standing.tasks]
    if len(names) > 1 and names.count(as_node) != 1:
        return (
            f"the thread stands at {', '.join(names)} at once, and what they do would be lost: "
            "amend as one of them whose name is there once"
        )
    made = [e for e in standing.effects if e.state == "done"]
    if len(names) > 1:
        made = [e for e in made if not _made_by_others(e, as_node, standing)]
    if made:
        return (
            f"effect {made[0].name} ({made[0].request_id}) of the step at which the thread stands "
            "has been made and would be forgotten: `fleet retry` goes on with its result"
        )
    return None


def _made_by_others(effect: SeenEffect, as_node: str, standing: Standing) -> bool:
    """Whether another task of the step is known to have made it (a call directly in its node)."""
    ids = (
        request_ids.for_call(
            standing.thread_id,
            standing.generation,
            f"{name}:{task_id}",
            (),
            effect.name,
            None,
            ordinal,
        )
        for name, task_id in standing.tasks
        if name != as_node
        for ordinal in range(len(standing.effects))
    )
    return effect.request_id in ids


def _state_names(graph: RegisteredGraph) -> set[str]:
    """Names of the state's values; empty where the state is no object."""
    if not isinstance(graph.graph, CompiledStateGraph):
        return set()
    names = set(graph.graph.builder.channels)
    return set() if "__root__" in names else names


def _close(name: str, known: Iterable[str]) -> str:
    known = [*known]
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
