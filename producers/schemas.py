"""JSON Schema, as the doors use it: the first thing that does not fit, in one line.

References are looked up inside the schema only. A schema that is itself broken, or
refers elsewhere, checks nothing: that is its author's fault, and the producer can't
do anything about it.
"""

from typing import Any

from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from .payloads import shown

_NO_OTHER_DOCUMENTS: Registry[Any] = Registry()


def first_error(schema: dict[str, Any], value: Any) -> tuple[str, str] | None:
    """(path of the value with a trailing ": ", or "", what is wrong), or None when it fits."""
    kind = validator_for(schema)
    try:
        kind.check_schema(schema)
        error = best_match(kind(schema, registry=_NO_OTHER_DOCUMENTS).iter_errors(value))
    except (SchemaError, Unresolvable):
        return None
    if error is None:
        return None
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    return (f"{shown(path.lstrip('.'))}: " if path else "", shown(error.message))
