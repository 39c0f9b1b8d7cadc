"""The graphs' input schemas, as registered in the fleet, kept for a minute."""

import threading
import time
from typing import Any

import psycopg
from jsonschema.protocols import Validator

from . import queries
from .errors import InvalidInput
from .forks import remade_after_fork
from .messages import Start
from .schemas import compiled, first_error

KEPT_FOR = 60.0  # seconds


class InputSchemas:
    """Checks a start's input. A graph without a schema takes any, and an unknown graph is
    fleet.accept's to refuse.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Validator | None]] = {}
        self._start_afresh()
        remade_after_fork(self)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()

    def check(self, conn: psycopg.Connection[Any], start: Start) -> None:
        """Raise InvalidInput, naming the value that does not fit."""
        validator = self._validator(conn, start.graph)
        if (error := first_error(validator, start.input)) is not None:
            path, reason = error
            raise InvalidInput(
                f"The input does not fit graph '{start.graph}': {path}{reason}.",
                "Correct the input and submit it again.",
                graph=start.graph,
                path=path.rstrip(": "),
            )

    def _validator(self, conn: psycopg.Connection[Any], graph: str) -> Validator | None:
        now = time.monotonic()
        with self._lock:
            until, validator = self._known.get(graph, (0.0, None))
        if now < until:
            return validator
        schema = queries.row(conn, "input_schema", graph=graph)
        validator = compiled(schema) if isinstance(schema, dict) else None
        if schema is not None:
            with self._lock:
                self._known[graph] = (now + KEPT_FOR, validator)
        return validator
