"""The ``store`` of langgraph.json: how the store that is lent to graphs searches and forgets.

    {"store": {"index": {"dims": 1536, "embed": "openai:text-embedding-3-small",
                         "fields": ["text"]},
               "ttl": {"default_ttl": 10080, "refresh_on_read": true,
                       "sweep_interval_minutes": 60}}}

``embed`` is a model as LangChain names it, ``provider:model``, or a function or an Embeddings
of your own, ``./file.py:embed`` or ``package.module:embed``. Times are minutes.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import TTLConfig, ensure_embeddings
from langgraph.store.postgres.base import PostgresIndexConfig

from graphs import loading
from infra.errors import RegistryError
from infra.vectors import index_config

INDEX_KEYS = ("dims", "embed", "fields")
TTL_KEYS = ("default_ttl", "refresh_on_read", "omit_expired", "sweep_interval_minutes")


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """``dims`` None: no search by meaning. ``ttl``: LangGraph's TTLConfig, in minutes."""

    folder: Path
    dims: int | None = None
    embed: str = ""
    fields: tuple[str, ...] = ("$",)
    ttl: TTLConfig = field(default_factory=TTLConfig)

    @classmethod
    def read(cls, given: Any, file: Path) -> "StoreConfig":
        """The file's ``store``. Raises RegistryError where it can't be used."""
        folder = file.parent
        if given is None:
            return cls(folder)
        try:
            index, ttl = (_object(given, "store").get(key) for key in ("index", "ttl"))
            read = {} if index is None else _index(_object(index, "store.index"))
            forgets = {} if ttl is None else _ttl(_object(ttl, "store.ttl"))
        except ValueError as exc:
            raise RegistryError(
                f"The graphs file {file} has a store that can't be used: {exc}.",
                "Correct it, or take it out.",
            ) from None
        return cls(folder, **read, ttl=cast(TTLConfig, forgets))

    @property
    def sweep_seconds(self) -> float | None:
        """Seconds between removals of what has expired; None: not said."""
        minutes = self.ttl.get("sweep_interval_minutes")
        return None if minutes is None else minutes * 60.0

    def index(self) -> PostgresIndexConfig | None:
        """What LangGraph's PostgresStore takes. Raises RegistryError where the embeddings
        can't be loaded."""
        if self.dims is None:
            return None
        return index_config(self.dims, self._embeddings(), [*self.fields])

    def _embeddings(self) -> Embeddings:
        try:
            if not _is_path(self.embed):
                return ensure_embeddings(self.embed)
            found = loading.attribute(self.embed, self.folder, "store.index.embed", "embed")
            if isinstance(found, Embeddings):
                return found
            if not callable(found):
                raise TypeError(f"it is of type {type(found).__name__}, no function")
            return ensure_embeddings(_blocking(found))
        except RegistryError:
            raise
        except (Exception, SystemExit) as exc:
            said = f"{type(exc).__name__}: {exc}".rstrip(".")
            raise RegistryError(
                f"store.index.embed can't be loaded from {self.embed}: {said}.",
                "Correct it in the graphs file, or install what it needs.",
            ) from exc


def _is_path(embed: str) -> bool:
    """Whether it names something of the project's own, no model of a provider."""
    before = embed.partition(":")[0]
    return "/" in before or "." in before


def _blocking(embed: Callable[..., Any]) -> Callable[[Sequence[str]], list[list[float]]]:
    """An async function too, for the store works in a thread; also for the one that calls it
    from a node on an event loop."""
    if not inspect.iscoroutinefunction(embed):
        return cast("Callable[[Sequence[str]], list[list[float]]]", embed)

    def run(texts: Sequence[str]) -> list[list[float]]:
        given: list[Any] = []

        def work() -> None:
            try:
                given.append(asyncio.run(_wait(embed(texts))))
            except BaseException as exc:
                given.append(exc)

        thread = threading.Thread(target=work, name="fleet-embed")
        thread.start()
        thread.join()
        if isinstance(given[0], BaseException):
            raise given[0]
        return cast("list[list[float]]", given[0])

    return run


async def _wait(work: Awaitable[Any]) -> Any:
    return await work


def _object(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"{what} is no object")
    return given


def _index(given: Mapping[str, Any]) -> dict[str, Any]:
    dims, embed, fields = (given.get(key) for key in INDEX_KEYS)
    if isinstance(dims, bool) or not isinstance(dims, int) or not 0 < dims <= 16_000:
        raise ValueError("store.index.dims is no number between 1 and 16000")
    if not isinstance(embed, str) or not all(embed.partition(":")):
        raise ValueError("store.index.embed is neither provider:model nor ./file.py:function")
    fields = ["$"] if fields is None else fields
    if not isinstance(fields, list) or not fields or not all(isinstance(f, str) for f in fields):
        raise ValueError("store.index.fields is no list of names")
    return {"dims": dims, "embed": embed, "fields": tuple(fields)}


def _ttl(given: Mapping[str, Any]) -> dict[str, Any]:
    read = {key: given[key] for key in TTL_KEYS if given.get(key) is not None}
    for key, value in read.items():
        boolean = key in ("refresh_on_read", "omit_expired")
        if boolean and not isinstance(value, bool):
            raise ValueError(f"store.ttl.{key} is neither true nor false")
        number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if not boolean and not number:
            raise ValueError(f"store.ttl.{key} is no number of minutes above 0")
    return read
