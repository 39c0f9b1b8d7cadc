"""A simple value of the type that a function says it returns: what a stand-in answers."""

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, NotRequired, Union

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

#: Tools give text to their model, whatever they do.
_TOOL_SAYS = "ok"


class NoSample(ValueError):
    """The annotation, or its lack, does not say what the function gives."""


def sample_of(function: Callable[..., Any], name: str) -> Any:
    """What the function may return, by its annotation. Raises NoSample."""
    if function.__module__ == "graphs.tools":
        return _TOOL_SAYS
    return _sample(_declared(function), name)


def result_of(function: Callable[..., Any], given: Any) -> Any:
    """``given`` (JSON) as what the function returns. Raises NoSample when it does not fit."""
    try:
        declared = _declared(function)
    except NoSample:
        return given
    try:
        adapter = TypeAdapter(declared)
    except PydanticUserError:
        # A type that pydantic can't check, typing's TypedDict before Python 3.12 for one.
        return given
    try:
        return adapter.validate_json(json.dumps(given))
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise NoSample(f"{where + ': ' if where else ''}{first['msg']}") from None


def _declared(function: Callable[..., Any]) -> Any:
    try:
        hints = typing.get_type_hints(function)
    except Exception as exc:
        raise NoSample(f"its annotations can't be read: {exc}") from None
    if "return" not in hints:
        raise NoSample("it does not say what it returns")
    return hints["return"]


def _sample(declared: Any, name: str) -> Any:
    """Plain JSON, put through pydantic where the type is more than that."""
    plain = _plain(declared, name, 0)
    try:
        return TypeAdapter(declared).validate_python(plain)
    except PydanticUserError:
        return plain
    except Exception:
        raise NoSample(f"no simple value of {declared!r} is known") from None


def _plain(declared: Any, name: str, depth: int) -> Any:
    origin, args = typing.get_origin(declared), typing.get_args(declared)
    if depth > 5 or declared in (Any, object):
        raise NoSample(f"{name}: nothing says what it is")
    if origin is Literal:
        return args[0]
    if origin in (Union, types.UnionType):
        kind = next((a for a in args if a is not type(None)), None)
        return _plain(kind, name, depth)
    if origin in (typing.Annotated, NotRequired, typing.Required):
        return _plain(args[0], name, depth)
    if origin in (list, set, frozenset, dict) or declared in (list, set, frozenset, dict):
        return {} if dict in (origin, declared) else []
    if origin is tuple:
        return [_plain(a, name, depth + 1) for a in args if a is not Ellipsis]
    if declared is None or declared is type(None):
        return None
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return next(iter(declared))
    fields = _fields(declared)
    if fields is not None:
        return {n: _plain(kind, n, depth + 1) for n, kind in fields.items()}
    return _leaf(declared, name)


def _fields(declared: Any) -> dict[str, Any] | None:
    """Those that have to be given; None for what has no fields."""
    if is_typeddict(declared):
        hints = typing.get_type_hints(declared)
        return {n: kind for n, kind in hints.items() if n in declared.__required_keys__}
    if isinstance(declared, type) and issubclass(declared, BaseModel):
        return {n: f.annotation for n, f in declared.model_fields.items() if f.is_required()}
    if dataclasses.is_dataclass(declared):
        hints = typing.get_type_hints(declared)
        missing = dataclasses.MISSING
        return {
            f.name: hints[f.name]
            for f in dataclasses.fields(declared)
            if f.default is missing and f.default_factory is missing
        }
    if isinstance(declared, type) and hasattr(declared, "_fields"):
        return {n: k for n, k in typing.get_type_hints(declared).items() if n in declared._fields}
    return None


def _leaf(declared: Any, name: str) -> Any:
    """The first of some plain values that the type takes."""
    try:
        adapter = TypeAdapter(declared)
    except PydanticUserError:
        raise NoSample(f"{name}: no simple value of {declared!r} is known") from None
    values = (name, True, 1, "1", "2026-01-01", "2026-01-01T00:00:00Z", "00:00:01")
    ordered = (True, *values) if declared is bool else values
    for value in (*ordered, "00000000-0000-4000-8000-000000000001"):
        try:
            adapter.validate_python(value)
        except Exception:
            continue
        return value
    raise NoSample(f"{name}: no simple value of {declared!r} is known")
