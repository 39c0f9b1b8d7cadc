"""The registry: the graphs that langgraph.json names, loaded lazily and one by one.

    {"dependencies": ["."], "env": ".env",
     "graphs": {"refund": "./graphs/refund.py:graph",
                "chat": {"path": "my.agents:make_graph", "queue": "slow", "async": true}}}

``queue``, ``async``, ``events`` and ``sensitive`` are ours and may be left out; ``store``: see
graphs.kept.
``env`` is a file or an object of variables that the graphs' modules may need; the process's
own environment wins. A graph that can't be loaded stops nobody but itself.
"""

import contextlib
import difflib
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from dotenv import dotenv_values
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore
from langgraph.store.postgres.base import PostgresIndexConfig

from graphs import loading, reach
from graphs.chats import messages_channel
from graphs.copies import copied
from graphs.kept import StoreConfig
from graphs.loading import Entry, Factory, Graph
from graphs.opening import Await, Leave, nothing
from graphs.schemas import input_schema
from graphs.unread import unread_keys
from infra.errors import RegistryError
from infra.setting_sources import PREFIX
from infra.settings import get_settings

log = logging.getLogger("fleet.registry")


@dataclass(frozen=True)
class RegisteredGraph:
    """One loaded graph, compiled without a checkpointer: a turn lends its own.

    factory: makes it anew, per turn or per slot (graphs.loading). declared_async: what the
    graphs file says of it, None when it says nothing; so is declared_events. leave: closes what
    was opened for it.
    """

    name: str
    graph: Graph
    queue: str
    factory: Factory | None = None
    declared_async: bool | None = None
    leave: Leave = nothing
    declared_events: str | None = None

    def made_anew(self, config: dict[str, Any], wait_for: Await) -> "RegisteredGraph":
        """As its factory makes it for this config; itself without one."""
        if self.factory is None:
            return self
        graph, leave = self.factory.make(self.name, config, wait_for)
        return replace(self, graph=graph, leave=leave)

    def lent(self, store: BaseStore) -> "RegisteredGraph":
        """With this store, unless it brought one of its own."""
        if self.graph.store is not None:
            return self
        return replace(self, graph=copied(self.graph, {"store": store}))

    @cached_property
    def input_schema(self) -> dict[str, Any] | None:
        """JSON Schema of the input; None where the graph's types have none."""
        try:
            return input_schema(self.graph)
        except Exception as exc:
            # pydantic adds an address of its own pages.
            said = next(iter(str(exc).splitlines()), "") or type(exc).__name__
            log.warning("graph %s has no JSON Schema for its input: %s", self.name, said)
            return None

    @cached_property
    def is_async(self) -> bool:
        """Whether something in it, in subgraphs too, has no sync implementation."""
        if self.declared_async is not None:
            return self.declared_async
        return any(reach.only_async(node) for g in self.all() for node in g.nodes.values())

    @cached_property
    def events(self) -> str:
        """What clients see of a run: ``full``, with texts and values, or ``steps``.

        Full by default where the graph keeps messages."""
        return self.declared_events or ("full" if self.messages else "steps")

    @cached_property
    def messages(self) -> str | None:
        """The channel that holds its conversation, if it has one."""
        return messages_channel(self.graph)

    @cached_property
    def has_breakpoints(self) -> bool:
        """Whether the graph stops before or after nodes by its own declaration."""
        return any(g.interrupt_before_nodes or g.interrupt_after_nodes for g in self.all())

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What a thread remembers of the graph: its node names."""
        return {"nodes": sorted(map(str, self.graph.nodes))}

    def all(self) -> Iterator[Graph]:
        """The graph and its subgraphs, as far as LangGraph sees them."""
        yield self.graph
        yield from self.subgraphs().values()

    def subgraphs(self) -> dict[str, Graph]:
        """The subgraphs by namespace: the names of the nodes that lead to each."""
        found = self.graph.get_subgraphs(recurse=True)
        return {ns: graph for ns, graph in found if isinstance(graph, Pregel)}


class Registry:
    """Graphs by name. Thread safe."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        folder: Path,
        variables: Mapping[str, str] | None = None,
        paths: tuple[Path, ...] = (),
        store: StoreConfig | None = None,
        unread: tuple[str, ...] = (),
    ) -> None:
        #: How the store that is lent to graphs searches and forgets.
        self.store = store or StoreConfig(folder)
        #: Keys of the file that mean nothing here, such as ``http`` or ``store.x``.
        self.unread = unread
        self._entries = dict(entries)
        self._folder = folder
        self._variables = dict(variables or {})
        self._paths = (folder, *paths)
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
        return cls(
            {n: loading.entry(n, e, path) for n, e in graphs.items()},
            path.parent,
            _variables(document.get("env"), path),
            _local(document.get("dependencies"), path.parent),
            StoreConfig.read(document.get("store"), path),
            unread_keys(document),
        )

    def names(self) -> list[str]:
        """Names in the file, of graphs that can't be loaded too."""
        return sorted(self._entries)

    def path(self, name: str) -> str:
        """Where the file says that the graph is."""
        return self._entries[name].path

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
        """What the doors need to know of each graph that loads: graph, queue, input_schema,
        sensitive."""
        described = []
        for name in self.names():
            try:
                found = self.get(name)
            except RegistryError as exc:
                log.error("%s", exc)
                continue
            described.append(
                {
                    "graph": name,
                    "queue": found.queue,
                    "input_schema": found.input_schema,
                    "sensitive": self._entries[name].sensitive,
                }
            )
        return described

    def broken(self) -> dict[str, str]:
        """Why, in one line, of each graph that can't be loaded."""
        found = {}
        for name in self.names():
            try:
                self.get(name)
            except RegistryError as exc:
                reason = exc.message.removeprefix(f"Graph {name!r} ")
                found[name] = next(iter(reason.splitlines()), "").strip()
        return found

    def store_index(self) -> PostgresIndexConfig | None:
        """How the lent store is searched by meaning, if it is. Raises RegistryError."""
        with self._lock:
            self._prepare()
            with contextlib.redirect_stdout(sys.stderr):
                return self.store.index()

    def _try(self, name: str) -> RegisteredGraph | RegistryError:
        entry = self._entries[name]
        self._prepare()
        try:
            # What a module prints when it is imported is no command's data.
            with contextlib.redirect_stdout(sys.stderr):
                graph, factory = loading.load(name, entry, self._folder)
        except RegistryError as exc:
            return exc
        queue = entry.queue or get_settings().queue
        return RegisteredGraph(
            name, graph, queue, factory, entry.is_async, declared_events=entry.events
        )

    def _prepare(self) -> None:
        """What the graphs' modules rely on: variables, and where to import from."""
        for variable, value in self._variables.items():
            os.environ.setdefault(variable, value)
        for path in map(str, self._paths):
            if path not in sys.path:
                sys.path.append(path)


def _variables(given: Any, file: Path) -> dict[str, str]:
    """``env``: a file beside the graphs file, or an object. Ours are no graph's business."""
    if given is None or given == "":
        return {}
    if isinstance(given, str):
        where = file.parent / given
        if not where.is_file():
            raise RegistryError(
                f"The graphs file {file} names the env file {where}, which does not exist.",
                "Make it, or correct env.",
            )
        given = {k: v for k, v in dotenv_values(where).items() if not k.startswith(PREFIX)}
    if not isinstance(given, dict) or not all(
        isinstance(v, str | int | float | None) for v in given.values()
    ):
        raise RegistryError(
            f"The graphs file {file} has an env that can't be used.",
            'Give the path of a file, or an object such as {"NAME": "value"}.',
        )
    if ours := sorted(name for name in given if name.startswith(PREFIX)):
        raise RegistryError(
            f"The graphs file {file} sets {ours[0]} in env, where the fleet's settings have no "
            "effect.",
            "Set it in the environment, in .env or in fleet.toml.",
        )
    return {name: str(value) for name, value in given.items() if value is not None}


def _local(given: Any, folder: Path) -> tuple[Path, ...]:
    """Folders among the dependencies: LangGraph's tools import from them."""
    names = [n for n in given if isinstance(n, str)] if isinstance(given, list) else []
    found = [(folder / name).resolve() for name in names if name.startswith(".")]
    return tuple(path for path in found if path.is_dir() and path != folder.resolve())


def _unknown(name: str, names: list[str]) -> RegistryError:
    close = difflib.get_close_matches(name, names, n=1)
    known = ", ".join(names) or "none"
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {known}."
    return RegistryError(f"There is no graph {name!r}.", hint, graph=name)
