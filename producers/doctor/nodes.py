"""Nodes that call the outside without an effect, as far as their code can be read.

A node that runs again makes such a call again; `@effect` is what makes it happen once.
Read are the functions that a node leads to (:mod:`graphs.reach`), in modules that are no
installed libraries, up to where an effect begins. Calls that only read are let be, and
listed in the data.
"""

import types
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from graphs import reach
from graphs.effects import AsyncEffect, Effect
from graphs.registry import RegisteredGraph, Registry
from infra.errors import RegistryError

from .calls import OutsideCall, outside_calls
from .finding import Finding, note, ok, problem, warning

#: Calls named per finding.
SHOWN = 10


def look(registry: Registry) -> Iterator[Finding]:
    """Whether each graph loads, then the calls of all."""
    graphs, broken = _load(registry)
    yield from broken
    if not broken:
        names = ", ".join(g.name for g in graphs) or "none"
        yield ok("graphs", f"Every graph of the graphs file loads: {names}.")
    reading = Reading()
    for graph in graphs:
        reading.read(graph)
    yield reading.finding()


def _load(registry: Registry) -> tuple[list[RegisteredGraph], list[Finding]]:
    graphs, broken = [], []
    for name in registry.names():
        try:
            graphs.append(registry.get(name))
        except RegistryError as exc:
            fix = exc.hint or "Correct it, then restart the workers."
            broken.append(problem("graphs", exc.message, fix, graph=name))
    return graphs, broken


class Reading:
    """What was read of the graphs, and the calls that were found."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.unread: set[str] = set()
        self._calls: dict[OutsideCall, set[tuple[str, str]]] = {}
        self._known: dict[Any, list[OutsideCall]] = {}

    def read(self, graph: RegisteredGraph) -> None:
        """Read all nodes of the graph and its subgraphs."""
        for part in graph.all():
            for name, node in part.nodes.items():
                for found in reach.reached(node, stop=(Effect, AsyncEffect)):
                    if isinstance(found, types.FunctionType) and not reach.is_library(found):
                        self._read(found, (graph.name, str(name)))

    def _read(self, function: types.FunctionType, node: tuple[str, str]) -> None:
        code = function.__code__
        if code not in self._known:
            try:
                self._known[code] = outside_calls(function)
                self.modules.add(function.__module__)
            except OSError:
                self._known[code] = []
                self.unread.add(function.__module__)
        for call in self._known[code]:
            self._calls.setdefault(call, set()).add(node)

    def finding(self) -> Finding:
        """One line, with all calls and the modules read in its data."""
        calls = [
            asdict(call) | {"nodes": [f"{g}/{n}" for g, n in sorted(nodes)]}
            for call, nodes in sorted(self._calls.items(), key=lambda c: (c[0].module, c[0].line))
        ]
        changing = [call for call in calls if call.pop("changes")]
        data: dict[str, Any] = {
            "calls": changing,
            "reads": [call for call in calls if call not in changing],
            "modules": sorted(self.modules),
            "unread": sorted(self.unread - self.modules),
        }
        read = f"Read: {', '.join(data['modules']) or 'no module of yours'}."
        if data["unread"]:
            read += f" Without source: {', '.join(data['unread'])}."
        if not changing:
            if not self.modules:
                return note("unprotected nodes", f"Nothing could be read. {read}", **data)
            said = "No call beside effects changes anything outside."
            return ok("unprotected nodes", f"{said} {read}", **data)
        fix = (
            "Declare the call as an effect (graphs.effects), or the node repeats it when it runs "
            "again; docs/effects.md."
        )
        said = f"Nodes call the outside beside effects: {_lines(changing)}. {read}"
        make = problem if any(call["sure"] for call in changing) else warning
        return make("unprotected nodes", said, fix, **data)


def _lines(calls: list[dict[str, Any]]) -> str:
    told = [
        f"{c['call']} of {c['library']}{'' if c['sure'] else ' (perhaps)'} in "
        f"{c['module']}:{c['line']}, node {', '.join(c['nodes'])}"
        for c in calls[:SHOWN]
    ]
    more = [f"and {len(calls) - SHOWN} more"] if len(calls) > SHOWN else []
    return "; ".join([*told, *more])
