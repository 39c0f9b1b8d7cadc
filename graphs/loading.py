"""Loading one graph that a graphs file names: its module, its attribute, and what that makes.

The attribute is a compiled graph (an ``@entrypoint`` is one), a StateGraph, or a function
that returns one. A function without arguments is called once; one that takes the run's
config is called for each turn, as LangGraph's servers do; an async one is called where
its graph will run, since what it opens belongs to that event loop. So is a context manager,
which stays open for as long (graphs.opening).
"""

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore

from graphs import own_code
from graphs.copies import copied
from graphs.masked_state import masked
from graphs.opening import Await, Leave, entered, is_context, own_loop
from infra.errors import RegistryError
from infra.masking import Rule

Graph: TypeAlias = Pregel[Any, Any, Any, Any]

#: How much of a run clients see (docs/events.md).
EVENTS = ("full", "steps")
#: Of graphs that LangGraph's tools take as well.
_OTHER_LANGUAGES = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the graphs file. ``is_async`` and ``events`` None: found out. ``mask``: what
    must not enter the state. ``sensitive``: its sessions ask for a fresh token after an absence."""

    path: str
    queue: str | None = None
    is_async: bool | None = None
    mask: Rule | None = None
    sensitive: bool = False
    events: str | None = None


@dataclass(frozen=True, slots=True)
class Factory:
    """A function that makes the graph anew: per turn when it takes a config, else per slot."""

    function: Callable[..., Any]
    takes_config: bool
    mask: Rule | None = None

    def make(self, name: str, config: dict[str, Any], wait_for: Await) -> tuple[Graph, Leave]:
        """A graph for this config, and what closes that which was opened for it.

        Raises RegistryError when it is none.
        """
        found = self.function(config) if self.takes_config else self.function()
        if inspect.iscoroutine(found):
            found = wait_for(found)
        made, leave = entered(found, wait_for)
        try:
            return masked(compiled(made, name), self.mask), leave
        except BaseException:
            leave()
            raise


def entry(name: str, value: Any, file: Path) -> Entry:
    """Read an entry: the path, or an object with it. Raises RegistryError."""
    fields = value if isinstance(value, dict) else {"path": value}
    where, queue, is_async = (fields.get(f) for f in ("path", "queue", "async"))
    sensitive = fields.get("sensitive", False)
    # A name stands before the colon of thread ids.
    events = fields.get("events")
    if events not in (None, *EVENTS):
        raise RegistryError(
            f"The graphs file {file} has events for {name!r} that can't be used: {events!r}.",
            'Give "full" (clients see texts and values) or "steps" (they see what was done).',
        )
    good = bool(name) and len(name) <= 64 and not set(name) & set("/:")
    fits = isinstance(queue, str | None) and isinstance(is_async, bool | None)
    fits = fits and isinstance(sensitive, bool)
    try:
        rule = Rule.of(fields.get("mask"))
    except ValueError as exc:
        raise RegistryError(
            f"The graphs file {file} has a mask for {name!r} that can't be used: {exc}.",
            'Give true, or the names of the fields, such as ["phone", "home_address"].',
        ) from None
    if not good or not fits or not isinstance(where, str):
        raise RegistryError(
            f"The graphs file {file} has an entry for {name!r} that can't be used.",
            'Give "./file.py:attribute", or an object with that as its path, and a name of at '
            "most 64 characters without '/' and ':'.",
        )
    return Entry(where, queue, is_async, rule, sensitive, events)


def load(name: str, entry: Entry, folder: Path) -> tuple[Graph, Factory | None]:
    """The graph, and what makes it anew if it is to be. Raises RegistryError."""
    try:
        found = attribute(entry.path, folder, f"Graph {name!r}", name)
        factory = _factory(found, name, entry.mask)
        if factory is None:
            made = found() if callable(found) and not _is_graph(found) else found
            if not is_context(made):
                return masked(compiled(made, name), entry.mask), None
            factory = Factory(found, False, entry.mask)
        # What it opens to be looked at is closed again: it belongs to a slot.
        with own_loop() as wait_for:
            graph, leave = factory.make(name, {"configurable": {}}, wait_for)
            leave()
        return graph, factory
    except RegistryError:
        raise
    except (Exception, SystemExit) as exc:
        raise RegistryError(
            f"Graph {name!r} can't be loaded from {entry.path}: {type(exc).__name__}: "
            f"{exc}{_place(exc, folder.resolve())}.",
            "Correct it, then restart the workers.",
        ) from exc


def compiled(found: Any, name: str) -> Graph:
    """Without a checkpointer, and without a store that would live in one process only."""
    if isinstance(found, StateGraph):
        found = found.compile()
    if not isinstance(found, Pregel):
        raise RegistryError(
            f"Graph {name!r} is of type {type(found).__name__}, which is no graph.",
            "Name a compiled graph, a StateGraph, or a function that returns one.",
        )
    update: dict[str, Any] = {}
    if found.checkpointer is not None:
        update["checkpointer"] = None
    if isinstance(found.store, InMemoryStore) and not holds_anything(found.store):
        update["store"] = None
    return copied(found, update) if update else found


def holds_anything(store: InMemoryStore) -> bool:
    """Whether an in-memory store was filled, or told how to embed, when it was made."""
    return bool(store.index_config) or bool(store.list_namespaces(limit=1))


# Factories


def _is_graph(found: Any) -> bool:
    return isinstance(found, Pregel | StateGraph)


def _factory(found: Any, name: str, rule: Rule | None) -> Factory | None:
    if _is_graph(found) or not callable(found):
        return None
    if inspect.isasyncgenfunction(found) or inspect.isgeneratorfunction(found):
        raise RegistryError(
            f"Graph {name!r} is made by a function that yields it, which is no context manager.",
            "Decorate it with contextlib.asynccontextmanager (or contextmanager).",
        )
    required = [
        p
        for p in inspect.signature(found).parameters.values()
        if p.name == "config"
        or (p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    ]
    if len(required) > 1 or any(p.kind is p.KEYWORD_ONLY for p in required):
        raise RegistryError(
            f"Graph {name!r} is made by a function that wants "
            f"{', '.join(p.name for p in required)}.",
            "Let it take nothing, or the run's config alone.",
        )
    if not required and not inspect.iscoroutinefunction(found):
        return None
    return Factory(found, bool(required), rule)


# Modules


def attribute(path: str, folder: Path, what: str, title: str) -> Any:
    """What ``./file.py:attribute`` or ``package.module:attribute`` names.

    ``what`` begins what is said of it, ``title`` names its module. Raises RegistryError, and
    whatever its module raises.
    """
    where, colon, name = path.rpartition(":")
    if not colon or not name:
        raise RegistryError(
            f"{what} has the path {path!r}, which names no attribute.",
            "Write ./file.py:attribute.",
        )
    module = _module(where, folder, what, title)
    try:
        return getattr(module, name)
    except AttributeError:
        close = difflib.get_close_matches(name, dir(module), n=1)
        raise RegistryError(
            f"{what}: {where} has no attribute {name!r}.",
            f"Did you mean {close[0]!r}?" if close else "Correct the graphs file.",
        ) from None


def _module(where: str, folder: Path, what: str, title: str) -> ModuleType:
    if "/" in where and Path(where).suffix in _OTHER_LANGUAGES:
        raise RegistryError(
            f"{what}: {where} is no Python, and the fleet runs LangGraph's Python graphs.",
            "Take it out of the graphs file that the fleet reads (FLEET_GRAPHS_FILE).",
        )
    if not where.endswith(".py"):
        return importlib.import_module(where)
    file = (folder / where).resolve()
    if not file.is_file():
        raise RegistryError(f"{what}: {file} does not exist.", "Correct the graphs file.")
    if (imported := _imported(file)) is not None:
        return imported
    # In a package of ours or theirs, the module's own name: its classes must have one identity.
    dotted = _dotted(file)
    if dotted is not None:
        return importlib.import_module(dotted)
    title = f"fleet_graphs.{title}"
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
        # By the end of its path first: there are thousands, and some load more when asked.
        origin = str(getattr(module, "__dict__", {}).get("__file__") or "")
        if origin.endswith(file.name) and Path(origin).resolve() == file:
            return module if module.__name__ != "__main__" else None
    return None


def _dotted(file: Path) -> str | None:
    """``package.module`` of a file in a package, else None.

    One that is not installed is made importable, unless another package has its name.
    """
    parts = [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.append(folder.name)
        folder = folder.parent
    if len(parts) == 1:
        return None
    dotted = ".".join(reversed(parts))
    try:
        if importlib.util.find_spec(parts[-1]) is None:
            sys.path.append(str(folder))
        spec = importlib.util.find_spec(dotted)
    except (ImportError, ValueError):
        return None
    return dotted if spec and spec.origin and Path(spec.origin).resolve() == file else None


def _place(exc: BaseException, folder: Path) -> str:
    """Where in the user's own files it happened: " (agent.py:3)"."""
    place = own_code.place_of(exc, folder)
    return f" ({place})" if place else ""
