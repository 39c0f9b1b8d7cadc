"""What an effect gave, as far as it is plain data: read without the code that made it.

Results are stored as LangGraph's serializer writes them: msgpack, where an object that is no
plain data is an extension holding (module, class, what it was made of, …). No class is
imported here; an object is shown as what it was made of (a model or dataclass as an object,
an amount or a time as text). Source of the codes: langgraph.checkpoint.serde.jsonplus.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

_NUMPY_ARRAY, _DELTA = 6, 7


def plain_result(kind: str, data: bytes) -> Any:
    """As JSON holds it; None for nothing, and for what can't be read so (a pickle, say)."""
    try:
        if kind == "json":
            return json.loads(data)
        if kind == "msgpack":
            return _plain(_unpacked(data))
        return str(data) if kind in ("bytes", "bytearray") else None
    # Whatever a library of the graph's has stored: to look at a thread must not fail for it.
    except Exception:
        return None


def _unpacked(data: bytes) -> Any:
    import ormsgpack

    return ormsgpack.unpackb(data, ext_hook=_made_of, option=ormsgpack.OPT_NON_STR_KEYS)


def _made_of(code: int, data: bytes) -> Any:
    found = _unpacked(data)
    if code == _DELTA:
        return found
    if code == _NUMPY_ARRAY:
        return None
    module, name, given, *_ = found
    if (module, name) == ("uuid", "UUID"):
        return f"{given[:8]}-{given[8:12]}-{given[12:16]}-{given[16:20]}-{given[20:]}"
    if (module, name) in (("builtins", "set"), ("builtins", "frozenset")):
        return sorted(given, key=str)
    if name in ("Path", "PosixPath") and module.startswith("pathlib"):
        return "/".join(given).replace("//", "/", 1)
    return given


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k if isinstance(k, str) else str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
