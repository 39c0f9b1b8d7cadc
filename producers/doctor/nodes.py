"""Nodes that call the outside without an effect, as far as their code can be read.

A node that runs again makes such a call again; `@effect` is what makes it happen once.
Read are the functions that a node leads to (:mod:`graphs.reach`), in modules that are no
installed libraries nor the fleet's own, up to where an effect begins. Calls that only
read are let be, and listed in the data.
"""

import types
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphs import own_code, reach
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
        self.files: set[str] = set()
        self.modules: set[str] = set()
        self.unread: set[str] = set()
        self._calls: dict[OutsideCall, set[tuple[str, str]]] = {}
        self._known: dict[Any, tuple[Any, list[OutsideCall]]] = {}

    def read(self, graph: RegisteredGraph) -> None:
        """Read all nodes of the graph and its subgraphs."""
        for part in graph.all():
            for name, node in part.nodes.items():
                for function, owner in _functions(node):
                    self._read(function, owner, (graph.name, str(name)))

    def _read(self, function: types.FunctionType, owner: Any, node: tuple[str, str]) -> None:
        # The owner is kept, so that no other can get its id.
        key = (function.__code__, id(owner))
        if key not in self._known:
            calls = []
            try:
                calls = outside_calls(function, owner)
                self.modules.add(function.__module__)
                self.files.add(_shown(function.__code__.co_filename))
            except OSError:
                self.unread.add(_shown(function.__code__.co_filename))
            self._known[key] = (owner, calls)
        for call in self._known[key][1]:
            self._calls.setdefault(call, set()).add(node)

    def finding(self) -> Finding:
        """One line, with all calls and the modules read in its data."""
        calls = [
            asdict(call)
            | {"file": _shown(call.file), "nodes": [f"{g}/{n}" for g, n in sorted(nodes)]}
            for call, nodes in sorted(self._calls.items(), key=lambda c: (c[0].file, c[0].line))
        ]
        changing = [call for call in calls if call.pop("changes")]
        data: dict[str, Any] = {
            "calls": changing,
            "reads": [call for call in calls if call not in changing],
            "modules": sorted(self.modules),
            "files": sorted(self.files),
            "unread": sorted(self.unread - self.files),
        }
        read = f"Read: {', '.join(data['files']) or 'no file'}."
        if data["unread"]:
            read += f" Without source: {', '.join(data['unread'])}."
        if not changing:
            if not self.files:
                return note("unprotected nodes", f"No node was looked at. {read}", **data)
            said = "No call beside effects changes anything outside."
            return ok("unprotected nodes", f"{said} {read}", **data)
        fix = (
            "Declare the call as an effect (graphs.effects), or the node repeats it when it runs "
            "again; docs/effects.md."
        )
        said = f"Nodes call the outside beside effects: {_lines(changing)}. {read}"
        make = problem if any(call["sure"] for call in changing) else warning
        return make("unprotected nodes", said, fix, **data)


def _functions(node: Any) -> Iterator[tuple[types.FunctionType, Any]]:
    """The user's functions that a node leads to, methods with their object."""
    found = [*reach.reached(node, stop=(Effect, AsyncEffect))]
    bound = [(f.__func__, f.__self__) for f in found if isinstance(f, types.MethodType)]
    methods = {id(function) for function, _ in bound}
    plain = [(f, None) for f in found if id(f) not in methods]
    for function, owner in [*bound, *plain]:
        if isinstance(function, types.FunctionType) and own_code.is_own(
            function.__code__.co_filename
        ):
            yield function, owner


def _shown(file: str) -> str:
    """A path as a person in this folder would write it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _lines(calls: list[dict[str, Any]]) -> str:
    told = [
        f"{c['call']} of {c['library']}{'' if c['sure'] else ' (perhaps)'} in "
        f"{c['file']}:{c['line']}, node {', '.join(c['nodes'])}"
        for c in calls[:SHOWN]
    ]
    more = [f"and {len(calls) - SHOWN} more"] if len(calls) > SHOWN else []
    return "; ".join([*told, *more])
