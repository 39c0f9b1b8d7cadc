"""JSON Schema, as the doors use it: the first thing that does not fit, in one line.

References are looked up inside the schema only. A schema that is itself broken, or
refers elsewhere, checks nothing: that is its author's fault, and the producer can't
do anything about it.
"""

from typing import Any

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from .payloads import shown

_NO_OTHER_DOCUMENTS: Registry[Any] = Registry()


def compiled(schema: dict[str, Any]) -> Validator | None:
    """The schema, checked itself once and ready for any number of values; None if broken."""
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
    except SchemaError:
        return None
    return kind(schema, registry=_NO_OTHER_DOCUMENTS)


def first_error(validator: Validator | None, value: Any) -> tuple[str, str] | None:
    """(path of the value with a trailing ": ", or "", what is wrong), or None when it fits."""
    if validator is None:
        return None
    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable:
        return None
    if error is None:
        return None
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    return (f"{shown(path.lstrip('.'))}: " if path else "", shown(error.message))
