"""The graphs' input schemas, as registered in the fleet, kept for a minute."""

import threading
import time
from typing import Any, NamedTuple

import psycopg
from jsonschema.protocols import Validator

from . import queries
from .errors import InvalidInput
from .forks import remade_after_fork
from .messages import Input, Start
from .schemas import compiled, first_error

KEPT_FOR = 60.0  # seconds


class _Checks(NamedTuple):
    """What a graph's input is held to. later: for a thread that has a state, to which a part
    of the input may be added."""

    first: Validator | None
    later: Validator | None


_ANY = _Checks(None, None)


class InputSchemas:
    """Checks the input of a message. A graph without a schema takes any, and an unknown graph
    is fleet.accept's to refuse.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, _Checks]] = {}
        self._start_afresh()
        remade_after_fork(self)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()

    def check(self, conn: psycopg.Connection[Any], message: Start | Input) -> None:
        """Raise InvalidInput, naming the value that does not fit."""
        checks = self._checks(conn, message.graph)
        require_fit(
            message.graph,
            checks.first if isinstance(message, Start) else checks.later,
            message.input,
        )

    def _checks(self, conn: psycopg.Connection[Any], graph: str) -> _Checks:
        now = time.monotonic()
        with self._lock:
            until, checks = self._known.get(graph, (0.0, _ANY))
        if now < until:
            return checks
        schema = queries.row(conn, "input_schema", graph=graph)
        checks = _compiled(schema) if isinstance(schema, dict) else _ANY
        if schema is not None:
            with self._lock:
                self._known[graph] = (now + KEPT_FOR, checks)
        return checks


def require_fit(graph: str, validator: Validator | None, value: Any) -> None:
    """Raise InvalidInput, naming what in the graph's input does not fit."""
    if (error := first_error(validator, value)) is not None:
        path, reason = error
        raise InvalidInput(
            f"The input does not fit graph '{graph}': {path}{reason}.",
            "Correct the input and send it again.",
            graph=graph,
            path=path.rstrip(": "),
        )


def _compiled(schema: dict[str, Any]) -> _Checks:
    part = {name: value for name, value in schema.items() if name != "required"}
    # What a reference at the top requires can't be told apart from what it forbids.
    return _Checks(compiled(schema), compiled(part) if "$ref" not in part else None)
