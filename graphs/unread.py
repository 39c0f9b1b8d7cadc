"""Keys of langgraph.json that the fleet does not read: LangGraph's own tools know more."""

from collections.abc import Iterator, Mapping
from typing import Any

from graphs.kept import INDEX_KEYS, TTL_KEYS

#: ``$schema`` is for editors.
_TOP = ("$schema", "dependencies", "env", "graphs", "store")
_GRAPH = ("path", "queue", "async", "mask")


def unread_keys(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Such keys, each with the way to it: ``http``, ``graphs.chat.description``."""
    store = document.get("store")
    parts = store if isinstance(store, dict) else {}
    return (
        *_others(document, _TOP),
        *(k for n, e in document["graphs"].items() for k in _others(e, _GRAPH, f"graphs.{n}.")),
        *_others(store, ("index", "ttl"), "store."),
        *_others(parts.get("index"), INDEX_KEYS, "store.index."),
        *_others(parts.get("ttl"), TTL_KEYS, "store.ttl."),
    )


def _others(given: Any, known: tuple[str, ...], before: str = "") -> Iterator[str]:
    if isinstance(given, dict):
        yield from (f"{before}{key}" for key in given if key not in known)
