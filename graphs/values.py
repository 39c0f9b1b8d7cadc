"""Values as they go into hashes, the ledger and people's questions.

What one store would take and the next refuse (NUL, lone surrogates, NaN) is made harmless
here, where a value enters, and not in the middle of a turn.
"""

import copy
import dataclasses
import hashlib
import json
import math
import operator
from collections import deque
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel

_REPLACEMENT = "\ufffd"
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)


def clean(value: Any) -> Any:
    """The value with text as of :func:`clean_text`, and NaN and infinities replaced by None, at
    any depth. The same object when there was nothing to replace."""
    if type(value) is str:
        return clean_text(value)
    if value is None or isinstance(value, bool | int | bytes | Decimal | Enum):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        cleaned = {clean(k): clean(v) for k, v in value.items()}
        same = all(map(operator.is_, value, cleaned)) and all(
            map(operator.is_, value.values(), cleaned.values())
        )
        return value if same and len(value) == len(cleaned) else cleaned
    if isinstance(value, (*_SEQUENCES, *_SETS)):
        return _clean_items(value)
    return _clean_fields(value)


def clean_text(text: str) -> str:
    """The text with U+FFFD for NUL and "?" for a lone surrogate. LangGraph's serializer stores "?"
    too: what is told before it is stored reads as it does after."""
    if "\x00" in text:
        text = text.replace("\x00", _REPLACEMENT)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode()
    return text


def _clean_items(value: Any) -> Any:
    cleaned = [clean(item) for item in value]
    if all(map(operator.is_, value, cleaned)):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*cleaned)
    return type(value)(cleaned)


def _clean_fields(value: Any) -> Any:
    fields = _fields(value)
    changed = {name: new for name, old in (fields or {}).items() if (new := clean(old)) is not old}
    if not changed:
        return value
    if isinstance(value, BaseModel):
        return value.model_copy(update=changed)
    cleaned = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(cleaned, name, new)
    return cleaned


def _fields(value: Any) -> dict[str, Any] | None:
    """Fields of a pydantic model or a dataclass; None for other things."""
    if isinstance(value, BaseModel):
        return {**value.__dict__, **(value.__pydantic_extra__ or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return None


def args_hash(arguments: Mapping[str, Any]) -> str:
    """Hash of a call's arguments. Raises TypeError for what is no data.

    Types are told apart (``Decimal("1.0")`` is not ``"1.0"``), but not what a checkpoint
    makes of them: a tuple comes back as a list, a dataclass as a dict, an enum as its value.
    """
    tagged = {name: _canonical(value, name) for name, value in arguments.items()}
    text = json.dumps(tagged, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any, where: str) -> Any:
    match value:
        case None | bool():
            return value
        case Enum():
            return _canonical(value.value, where)
        case str():
            return ["s", clean_text(value)]
        case int():
            return ["i", str(int(value))]
        case float():
            return ["f", repr(float(value))]
        case bytes() | bytearray() | memoryview():
            return ["y", bytes(value).hex()]
        case Decimal():
            return ["d", _decimal(value)]
        case dict() | Mapping():
            pairs = [
                [_canonical(k, where), _canonical(v, f"{where}.{k}")] for k, v in value.items()
            ]
            return ["m", sorted(pairs, key=json.dumps)]
        case set() | frozenset():
            return ["e", sorted((_canonical(v, where) for v in value), key=json.dumps)]
        case list() | tuple() | deque() if not hasattr(value, "_fields"):
            return ["l", [_canonical(v, f"{where}[{n}]") for n, v in enumerate(value)]]
    return _canonical_object(value, where)


def _canonical_object(value: Any, where: str) -> Any:
    match value:
        case datetime():
            stamp = value.astimezone(UTC) if value.tzinfo else value
            return ["t", stamp.isoformat()]
        case date() | time():
            return ["t", value.isoformat()]
        case timedelta():
            return ["t", repr(value)]
        case UUID() | PurePath():
            return ["p", str(value)]
        case tuple():
            return _canonical(value._asdict(), where)  # type: ignore[attr-defined]
    fields = _fields(value)
    if fields is None:
        raise TypeError(
            f"argument {where} is of type {type(value).__name__}: give an effect plain data, so "
            "that a replay can be checked against it"
        )
    return _canonical(fields, where)


def _decimal(value: Decimal) -> str:
    """Equal numbers, equal text; exact at any length."""
    if not value.is_finite():
        return str(value)
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    if not text:
        return "0"
    stripped = text.rstrip("0")
    return f"{'-' if sign else ''}{stripped}E{int(exponent) + len(text) - len(stripped)}"


def plain(value: Any) -> Any:
    """JSON-plain and clean: what a page, a table or another language can show.

    Decimals and times become text, objects their fields, anything else its ``str``.
    """
    return _plain(clean(value))


def _plain(value: Any) -> Any:
    """Of a value that `clean` gave; what it does not look into goes through `plain` again."""
    # First what payloads mostly are.
    kind = type(value)
    if kind is str:
        return value
    if kind is dict:
        return {k if isinstance(k, str) else str(k): _plain(v) for k, v in value.items()}
    if kind is list:
        return [_plain(v) for v in value]
    match value:
        case None | bool() | float():
            return value
        case Enum():
            return plain(value.value)
        case str():
            return str.__str__(value)
        case int():
            # Beyond 64 bits other JSON readers would round it.
            return int(value) if -(2**63) <= value < 2**63 else str(int(value))
        case dict() | Mapping():
            return {k if isinstance(k, str) else str(k): plain(v) for k, v in value.items()}
        case list() | tuple() | deque() if not hasattr(value, "_fields"):
            return [_plain(v) for v in value]
        case set() | frozenset():
            return sorted((_plain(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
        case tuple():
            return plain(value._asdict())  # type: ignore[attr-defined]
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray():
            return clean_text(bytes(value).decode("utf-8", "replace"))
        case BaseModel():
            return plain(value.model_dump())
    fields = _fields(value)
    return clean_text(str(value)) if fields is None else plain(fields)
