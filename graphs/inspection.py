"""What can be said of a registered graph without running it: nodes, effects, problems."""

from typing import Any

from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt

from graphs import reach
from graphs.effects import AsyncEffect, Effect
from graphs.registry import RegisteredGraph, Registry
from infra.errors import RegistryError


def inspected(registry: Registry, name: str) -> dict[str, Any]:
    """Shape ``{"graph", "path", "queue", "async", "nodes": [{"name", "effects"}], "effects":
    [{"name", "on_doubt"}], "problems": [text], "error": None or {"message", "hint"}}``."""
    about: dict[str, Any] = {"graph": name, "path": registry.path(name)}
    try:
        found = registry.get(name)
    except RegistryError as broken:
        nothing: dict[str, Any] = {"queue": None, "async": None, "nodes": [], "effects": []}
        error = {"message": broken.message, "hint": broken.hint}
        return about | nothing | {"problems": [str(broken)], "error": error}
    nodes = _nodes(found)
    used: dict[str, Any] = {}
    for effects in nodes.values():
        used |= effects
    return about | {
        "queue": found.queue,
        "async": found.is_async,
        "nodes": [{"name": node, "effects": [*effects]} for node, effects in nodes.items()],
        "effects": [{"name": e.name, "on_doubt": e._spec.policy} for _, e in sorted(used.items())],
        "problems": problems(found),
        "error": None,
    }


def notes(registry: Registry) -> list[str]:
    """What of the graphs file as a whole will not do what its author expects."""
    said = []
    if registry.unread:
        said.append(f"not read by the fleet, and without effect here: {', '.join(registry.unread)}")
    try:
        registry.store_index()
    except RegistryError as exc:
        said.append(str(exc))
    return said


def problems(found: RegisteredGraph) -> list[str]:
    """What of a graph that loads will not do what its author expects."""
    said = []
    if isinstance(found.graph.store, InMemoryStore):
        said.append(
            "its InMemoryStore is another one in each process of a worker: compile it without a "
            "store, and the fleet lends it one in Postgres"
        )
    if found.input_schema is None:
        said.append("its input has no JSON Schema: anything is accepted, and may fail in the graph")
    if found.declared_async is False and _needs_async(found):
        said.append('the graphs file says "async": false, and parts of it have no sync version')
    for node, runs in found.graph.nodes.items():
        if any(_forgets_questions(r) for r in reach.reached(runs)):
            said.append(
                f"node {node} runs a subgraph with checkpointer=False that asks questions: no "
                "answer can be given to it"
            )
    for graph in found.all():
        if graph.cache is None:
            cached = [n for n, node in graph.nodes.items() if node.cache_policy is not None]
            said += [f"node {n} has a cache policy, and the graph no cache" for n in cached]
    return said


def _nodes(found: RegisteredGraph) -> dict[str, dict[str, Any]]:
    """Effects by node; of a subgraph's nodes too, named ``node|inner``."""
    graphs = {"": found.graph, **{f"{ns}|": g for ns, g in found.subgraphs().items()}}
    return {
        f"{where}{node}": reach.named((Effect, AsyncEffect), runs)
        for where, graph in graphs.items()
        for node, runs in graph.nodes.items()
        if node != "__start__"
    }


def _forgets_questions(reached: Any) -> bool:
    """Whether it is a graph that asks, and keeps no place to which an answer could lead."""
    stateless = isinstance(reached, Pregel) and reached.checkpointer is False
    return stateless and any(r is interrupt for r in reach.reached(reached))


def _needs_async(found: RegisteredGraph) -> bool:
    return any(reach.only_async(node) for g in found.all() for node in g.nodes.values())
