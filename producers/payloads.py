"""What a payload may hold, its canonical form and its hash.

A payload passes through Postgres' jsonb, LangGraph's serializer and other people's
languages. What one of them would refuse, or change without a word, is refused here,
before anything is accepted: NUL characters and lone surrogates (jsonb and UTF-8
refuse them, in the middle of a turn), NaN and infinities (not JSON), integers beyond
64 bits (msgpack), and whatever is no JSON at all, such as a Decimal.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from .errors import InvalidPayload

#: Bytes of the canonical form.
MAX_BYTES = 256 * 1024
#: Objects and lists within each other.
MAX_DEPTH = 64

_SMALLEST, _LARGEST = -(2**63), 2**63 - 1


def canonical_json(value: Any) -> str:
    """JSON with sorted keys, no spaces and no escapes that UTF-8 makes needless."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def canonical_hash(value: Any) -> str:
    """sha256 of the canonical form in UTF-8, in hex: equal payloads have equal hashes."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def checked_object(value: Any, name: str = "payload") -> dict[str, Any]:
    """A plain copy of a JSON object, or InvalidPayload."""
    if not isinstance(value, Mapping):
        raise InvalidPayload(
            f"The {name} {'are' if name.endswith('s') else 'is'} {_kind(value)}, not an object.",
            'Give a JSON object such as {"user_id": "u_42"}.',
        )
    found: dict[str, Any] = checked(value, name)
    return found


def checked(value: Any, name: str = "payload") -> Any:
    """A plain copy of a JSON value (dict, list, str, int, float, bool, None), or InvalidPayload."""
    plain = _plain(value, name, 0)
    size = len(canonical_json(plain).encode())
    if size > MAX_BYTES:
        raise InvalidPayload(
            f"The {name} is {size} bytes as JSON; {MAX_BYTES} are allowed.",
            "Store the bulk elsewhere and send a reference to it.",
        )
    return plain


def _plain(value: Any, path: str, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value, path)
    if isinstance(value, int):
        if not _SMALLEST <= value <= _LARGEST:
            raise InvalidPayload(
                f"{shown(path)} is an integer beyond 64 bits.", "Send it as a string."
            )
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidPayload(
                f"{shown(path)} is {value}, which JSON can't hold.", "Send null instead."
            )
        return float(value)
    if depth >= MAX_DEPTH:
        raise InvalidPayload(
            f"{shown(path)} is nested deeper than {MAX_DEPTH} levels.", "Flatten it."
        )
    if isinstance(value, Mapping):
        return {
            _key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]
    raise InvalidPayload(
        f"{shown(path)} is {_kind(value)}, which is not JSON.",
        "Convert it first (amounts and times as strings).",
    )


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise InvalidPayload(
            f"{shown(path)} has {_kind(key)} as a key.", "Keys of JSON objects are text."
        )
    return checked_text(key, f"a key of {path}")


def checked_text(text: str, path: str) -> str:
    """The same text as a plain str; refuses NUL and lone surrogates."""
    if "\x00" in text:
        raise InvalidPayload(f"{shown(path)} holds a NUL character.", "Remove it.")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidPayload(
            f"{shown(path)} holds a lone surrogate (at character {exc.start}), which is not text.",
            "Decode the source as UTF-8.",
        ) from None
    return str.__str__(text)


def shown(text: str, longest: int = 120) -> str:
    """Text as it can be printed anywhere: never a control character, never too long."""
    short = text if len(text) <= longest else text[: longest - 3] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For json.loads: an object whose keys are there once, or ValueError."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(k for n, (k, _) in enumerate(pairs) if k in dict(pairs[:n]))
        raise ValueError(f"the key {json.dumps(twice)} is there twice")
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", type(None): "null"}
    return names.get(type(value), f"of type {type(value).__name__}")
