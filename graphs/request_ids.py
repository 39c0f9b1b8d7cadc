"""Request ids: the same at each replay, different for each intended call.

A pure function of where the call stands in its thread (or of its business key), never of
a run, an epoch, a time, arguments, or anything that a model said.
"""

import hashlib
import json
from typing import Any

#: Changing what goes into an id would repeat the effects of threads under way.
_SCHEME = 1


def for_call(
    thread_id: str,
    generation: int,
    root: str,
    path: tuple[tuple[Any, ...], ...],
    name: str,
    label: str | None,
    ordinal: int,
) -> str:
    """The id of one call.

    root: identity of the root graph's task; path: the nodes below it (graphs.position);
    ordinal: how many calls of this name and label the task's execution made before.
    """
    return _digest(["call", thread_id, generation, root, path, name, label, ordinal])


def for_key(tenant: str, name: str, key: str) -> str:
    """The id of a keyed effect: the same in every thread and generation."""
    return _digest(["key", tenant, name, key])


def effect_key(tenant: str, name: str, key: str) -> str:
    """The row of ``keyed_effects``; a name holds neither ``/`` nor ``:``."""
    return f"{tenant}/{name}:{key}"


def renewed_key(effect_key: str | None, renewed: str) -> str | None:
    """The row of ``keyed_effects`` for the request that takes a failed one's place. The row
    before names it, so every thread that asks for the effect comes to the same."""
    return None if effect_key is None else f"{effect_key}#{renewed}"


def _digest(parts: list[Any]) -> str:
    """``fr_`` and 128 bits in hex: safe as a header, a path segment and a file name."""
    text = json.dumps([_SCHEME, *parts], separators=(",", ":"))
    return "fr_" + hashlib.sha256(text.encode()).hexdigest()[:32]
