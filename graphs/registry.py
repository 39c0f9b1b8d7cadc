"""The registry: the graphs that langgraph.json names, loaded lazily and one by one.

An entry is ``"path.py:attribute"``, ``"package.module:attribute"``, or an object with that as
``path`` and an optional ``queue``. The attribute is a compiled graph, a StateGraph, or a
function that returns one. A graph that can't be loaded stops nobody but itself.
"""

import difflib
import importlib
import importlib.util
import inspect
import json
import logging
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from infra.errors import RegistryError
from infra.settings import get_settings

log = logging.getLogger("fleet.registry")


@dataclass(frozen=True)
class RegisteredGraph:
    """One loaded graph, compiled without a checkpointer: a turn lends its own."""

    name: str
    graph: Pregel[Any, Any, Any, Any]
    queue: str

    @cached_property
    def input_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the input; None where the graph's types have none."""
        try:
            return self.graph.get_input_jsonschema()
        except Exception as exc:
            log.warning("graph %s has no JSON Schema for its input: %s", self.name, exc)
            return None

    @cached_property
    def is_async(self) -> bool:
        """Whether a node, of subgraphs too, has no sync implementation."""
        return any(
            _only_async(node.bound) for graph in self._all() for node in graph.nodes.values()
        )

    @cached_property
    def has_breakpoints(self) -> bool:
        """Whether the graph stops before or after nodes by its own declaration."""
        return any(g.interrupt_before_nodes or g.interrupt_after_nodes for g in self._all())

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What a thread remembers of the graph: its node names."""
        return {"nodes": sorted(map(str, self.graph.nodes))}

    def _all(self) -> Iterator[Pregel[Any, Any, Any, Any]]:
        yield self.graph
        for _, subgraph in self.graph.get_subgraphs(recurse=True):
            if isinstance(subgraph, Pregel):
                yield subgraph


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    queue: str | None


class Registry:
    """Graphs by name. Thread safe."""

    def __init__(self, entries: Mapping[str, _Entry], folder: Path) -> None:
        self._entries = dict(entries)
        self._folder = folder
        self._loaded: dict[str, RegisteredGraph | RegistryError] = {}
        self._lock = threading.RLock()

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read the graphs file; graphs themselves load at first use. Raises RegistryError."""
        path = Path(path).absolute()
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RegistryError(
                f"The graphs file {path} does not exist.", "Set FLEET_GRAPHS_FILE to yours."
            ) from None
        except (OSError, ValueError) as exc:
            raise RegistryError(
                f"The graphs file {path} can't be read: {exc}.", "Correct it."
            ) from None
        graphs = document.get("graphs") if isinstance(document, dict) else None
        if not isinstance(graphs, dict):
            raise RegistryError(
                f"The graphs file {path} has no object named graphs.",
                'Give it {"graphs": {"name": "./file.py:attribute"}}.',
            )
        return cls({n: _entry(n, e, path) for n, e in graphs.items()}, path.parent)

    def names(self) -> list[str]:
        """Names in the file, of graphs that can't be loaded too."""
        return sorted(self._entries)

    def get(self, name: str) -> RegisteredGraph:
        """The graph of that name. Raises RegistryError for an unknown or a broken one."""
        with self._lock:
            if name not in self._entries:
                raise _unknown(name, self.names())
            if name not in self._loaded:
                self._loaded[name] = self._try(name)
            found = self._loaded[name]
        if isinstance(found, RegistryError):
            raise found
        return found

    def described(self) -> list[dict[str, Any]]:
        """What the doors need to know of each graph that loads: graph, queue, input_schema."""
        described = []
        for name in self.names():
            try:
                found = self.get(name)
            except RegistryError as exc:
                log.error("%s", exc)
                continue
            described.append(
                {"graph": name, "queue": found.queue, "input_schema": found.input_schema}
            )
        return described

    def _try(self, name: str) -> RegisteredGraph | RegistryError:
        entry = self._entries[name]
        try:
            graph = _compiled(_attribute(entry.path, self._folder, name), name)
        except RegistryError as exc:
            return exc
        except Exception as exc:
            return RegistryError(
                f"Graph {name!r} can't be loaded from {entry.path}: {type(exc).__name__}: {exc}.",
                "Correct it, then restart the workers.",
            )
        return RegisteredGraph(name, graph, entry.queue or get_settings().queue)


def _entry(name: str, value: Any, path: Path) -> _Entry:
    entry = value if isinstance(value, dict) else {"path": value}
    where, queue = entry.get("path"), entry.get("queue")
    # A name stands before the colon of thread ids.
    good_name = bool(name) and len(name) <= 64 and not set(name) & set("/:")
    if not good_name or not isinstance(where, str) or not isinstance(queue, str | None):
        raise RegistryError(
            f"The graphs file {path} has an entry for {name!r} that can't be used.",
            'Give "./file.py:attribute", or an object with that as its path, and a name of at '
            "most 64 characters without '/' and ':'.",
        )
    return _Entry(where, queue)


def _attribute(path: str, folder: Path, name: str) -> Any:
    where, colon, attribute = path.rpartition(":")
    if not colon or not attribute:
        raise RegistryError(
            f"Graph {name!r} has the path {path!r}, which names no attribute.",
            "Write ./file.py:attribute.",
        )
    module = _module(where, folder, name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        close = difflib.get_close_matches(attribute, dir(module), n=1)
        raise RegistryError(
            f"Graph {name!r}: {where} has no attribute {attribute!r}.",
            f"Did you mean {close[0]!r}?" if close else "Correct the graphs file.",
        ) from None


def _module(where: str, folder: Path, name: str) -> ModuleType:
    if not where.endswith(".py"):
        return importlib.import_module(where)
    file = (folder / where).resolve()
    if not file.is_file():
        raise RegistryError(f"Graph {name!r}: {file} does not exist.", "Correct the graphs file.")
    if (imported := _imported(file)) is not None:
        return imported
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    # In a package of ours or theirs, the module's own name: its classes must have one identity.
    dotted = _dotted(file)
    if dotted is not None:
        return importlib.import_module(dotted)
    title = f"fleet_graphs.{name}"
    spec = importlib.util.spec_from_file_location(title, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[title] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[title]
        raise
    return module


def _imported(file: Path) -> ModuleType | None:
    for module in [*sys.modules.values()]:
        origin = getattr(module, "__file__", None)
        if origin and Path(origin).name == file.name and Path(origin).resolve() == file:
            return module if module.__name__ != "__main__" else None
    return None


def _dotted(file: Path) -> str | None:
    """``package.module`` of a file in a package that is importable, else None."""
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.append(folder.name)
        folder = folder.parent
    if len(parts) == 1:
        return None
    dotted = ".".join(reversed(parts))
    try:
        spec = importlib.util.find_spec(dotted)
    except (ImportError, ValueError):
        return None
    return dotted if spec and spec.origin and Path(spec.origin).resolve() == file else None


def _compiled(found: Any, name: str) -> Pregel[Any, Any, Any, Any]:
    if callable(found) and not isinstance(found, Pregel | StateGraph):
        # LangGraph's factories may take the run's config; at load time there is none.
        found = found({}) if _takes_config(found) else found()
    if isinstance(found, StateGraph):
        found = found.compile()
    if not isinstance(found, Pregel):
        raise RegistryError(
            f"Graph {name!r} is of type {type(found).__name__}, which is no graph.",
            "Name a compiled graph, a StateGraph, or a function that returns one.",
        )
    return found.copy({"checkpointer": None}) if found.checkpointer else found


def _takes_config(factory: Any) -> bool:
    return any(p.default is p.empty for p in inspect.signature(factory).parameters.values())


def _only_async(runnable: Any) -> bool:
    if hasattr(runnable, "steps"):
        return any(_only_async(step) for step in runnable.steps)
    return getattr(runnable, "afunc", None) is not None and getattr(runnable, "func", 0) is None


def _unknown(name: str, names: list[str]) -> RegistryError:
    close = difflib.get_close_matches(name, names, n=1)
    known = ", ".join(names) or "none"
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {known}."
    return RegistryError(f"There is no graph {name!r}.", hint, graph=name)
