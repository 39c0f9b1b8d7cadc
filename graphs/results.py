"""Results of effects as the ledger holds them: LangGraph's serializer, bytes, up to 1 MiB.

A node is always given the decoded value, at the first run too, so that a replay sees
nothing else. Classes come back as themselves where the effect's return annotation names
them (dataclass, pydantic model, enum); an undeclared class comes back as its plain data.
"""

import dataclasses
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from graphs.values import clean

MAX_BYTES = 1024 * 1024


class Unstorable(ValueError):
    """The value can't be stored or read back; the message says why."""


class Codec:
    """Encodes and decodes the results of one effect."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._serializer: JsonPlusSerializer | None = None

    def encode(self, value: Any) -> tuple[tuple[str, bytes], Any]:
        """Clean and serialize: (stored, the value as nodes get it). Raises Unstorable."""
        try:
            stored = self._serde().dumps_typed(clean(value))
        except Exception as exc:
            raise Unstorable(f"{type(value).__name__} can't be serialized: {exc}") from exc
        if len(stored[1]) > MAX_BYTES:
            raise Unstorable(f"it has {len(stored[1])} bytes, {MAX_BYTES} are allowed")
        return stored, self.decode(stored)

    def decode(self, stored: tuple[str, bytes]) -> Any:
        """The value as nodes get it. Raises Unstorable."""
        try:
            value = self._serde().loads_typed((stored[0], bytes(stored[1])))
        except Exception as exc:
            raise Unstorable(f"it can't be read back: {exc}") from exc
        if value is None and stored[0] != "null":
            raise Unstorable("it would come back as None")
        return value

    def _serde(self) -> JsonPlusSerializer:
        if self._serializer is None:
            try:
                declared = typing.get_type_hints(self._function).get("return")
            except Exception:
                # An annotation that can't be evaluated declares nothing.
                declared = None
            classes: set[type] = set()
            _collect(declared, classes)
            self._serializer = JsonPlusSerializer(
                allowed_msgpack_modules=[(c.__module__, c.__name__) for c in classes] or None
            )
        return self._serializer


def _collect(declared: Any, found: set[type]) -> None:
    """Add the classes with fields, and the enums, that an annotation reaches."""
    for part in typing.get_args(declared):
        _collect(part, found)
    if not isinstance(declared, type) or declared in found:
        return
    is_record = (
        dataclasses.is_dataclass(declared)
        or issubclass(declared, BaseModel)
        or (issubclass(declared, tuple) and hasattr(declared, "_fields"))
    )
    if not is_record and not issubclass(declared, Enum):
        return
    found.add(declared)
    if is_record:
        try:
            fields = typing.get_type_hints(declared)
        except Exception:
            fields = {}
        for part in fields.values():
            _collect(part, found)
