"""A slot's Postgres session, on which a turn's calls are one prepared statement each.

An end that claims the next turn is not waited for to the last: its reply comes before its
commit, and the next turn begins meanwhile. `settle` waits for the commit. Whatever the
session is used for next does so first, and so does a turn that is about to keep something;
until then it has only been thinking. What must not be before the commit is given with the
call and done by `settle`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar

import orjson
import psycopg
from psycopg import generators, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq.abc import PGconn, PGresult
from psycopg.types.json import set_json_dumps, set_json_loads

T = TypeVar("T")


def _text(value: str) -> bytes:
    return value.encode()


def _int4(value: int) -> bytes:
    return value.to_bytes(4, signed=True)


def _int8(value: int) -> bytes:
    return value.to_bytes(8, signed=True)


def _jsonb(value: Any) -> bytes:
    return b"\x01" + orjson.dumps(value)


#: Types of parameters: their OIDs, and how values are sent. Always in binary, with their lengths:
#: a NUL in a text is refused, not taken for its end.
_TYPES: dict[str, tuple[int, Callable[[Any], bytes]]] = {
    "text": (25, _text),
    "int4": (23, _int4),
    "int8": (20, _int8),
    "jsonb": (3802, _jsonb),
    "bytea": (17, bytes),
}


class Call(Generic[T]):
    """A statement that gives one row, which becomes a `row`. types: of $1, $2, …"""

    def __init__(
        self, name: str, row: Callable[..., T], sql: LiteralString, types: Sequence[str]
    ) -> None:
        self.name = name.encode()
        self.row = row
        self.sql = sql.encode()
        self.oids = [_TYPES[t][0] for t in types]
        self.formats = [pq.Format.BINARY] * len(types)
        self._encoders = [_TYPES[t][1] for t in types]

    def encoded(self, args: Sequence[Any]) -> list[bytes | None]:
        """The arguments as they are sent. Raises TypeError or ValueError where they can't be."""
        return [
            None if value is None else encode(value)
            for encode, value in zip(self._encoders, args, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Then:
    """What is to be done when the commit has been made, and when nobody can tell whether."""

    made: Callable[[], None]
    lost: Callable[[], None]


#: Nothing at all.
NOTHING = Then(lambda: None, lambda: None)


class Session(psycopg.Connection[Any]):
    """Its calls are not thread safe: the claim's lock guards the session of a turn."""

    def __init__(self, pgconn: PGconn, *args: Any, **kwargs: Any) -> None:
        super().__init__(pgconn, *args, **kwargs)
        # JSON-safe is all that comes and goes.
        set_json_dumps(orjson.dumps, self)
        set_json_loads(orjson.loads, self)
        self._calls: set[bytes] = set()
        self._rows = Transformer(self)
        self._ahead: Then | None = None

    def call(self, call: Call[T], args: Sequence[Any]) -> T:
        """Give the call's row once it is committed. Raises psycopg.Error; TypeError or
        ValueError before anything is sent."""
        values = call.encoded(args)
        self.settle()
        with self.lock:
            self._prepare(call)
            self._send(call, values)
            return self._row(call, self.wait(generators.execute(self.pgconn)))

    def call_ahead(self, call: Call[T], args: Sequence[Any], then: Then) -> T:
        """As call, but give the row as soon as it is there: `settle` waits for the commit."""
        values = call.encoded(args)
        self.settle()
        with self.lock:
            self._prepare(call)
            self.pgconn.enter_pipeline_mode()
            self._ahead = then
            self._send(call, values)
            self.pgconn.send_flush_request()
            self.pgconn.pipeline_sync()
            results = self.wait(generators.execute(self.pgconn))
            try:
                return self._row(call, results)
            except psycopg.Error:
                # There is no commit then.
                self._ahead = None
                self._synchronize()
                raise

    def settle(self) -> None:
        """Wait for the commit under way, if there is one, and do what comes after it.

        Raises psycopg.OperationalError, with the session closed, where it is not known
        whether it was made.
        """
        if (then := self._ahead) is None:
            return
        try:
            with self.lock:
                self._synchronize()
        except psycopg.Error as exc:
            self.close()
            raise psycopg.OperationalError(f"a commit was lost: {exc}") from exc
        self._ahead = None
        then.made()

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        """As psycopg's, which all of its statements go through."""
        self.settle()
        return super().cursor(*args, **kwargs)

    def close(self) -> None:
        super().close()
        if (then := self._ahead) is not None:
            self._ahead = None
            then.lost()

    # Inside, under the connection's lock

    def _prepare(self, call: Call[Any]) -> None:
        if call.name not in self._calls:
            self.pgconn.send_prepare(call.name, call.sql, call.oids)
            (result,) = self.wait(generators.execute(self.pgconn))
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise error_from_result(result)
            self._calls.add(call.name)

    def _send(self, call: Call[Any], values: list[bytes | None]) -> None:
        self.pgconn.send_query_prepared(call.name, values, call.formats, pq.Format.BINARY)

    def _row(self, call: Call[T], results: list[PGresult]) -> T:
        (result,) = results
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        self._rows.set_pgresult(result)
        row = self._rows.load_row(0, tuple)
        assert row is not None
        return call.row(*row)

    def _synchronize(self) -> None:
        """To the end of the pipeline, and out of it. Raises what the commit has met."""
        error: psycopg.Error | None = None
        while True:
            for result in self.wait(generators.fetch_many(self.pgconn)):
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    self.pgconn.exit_pipeline_mode()
                    if error is not None:
                        raise error
                    return
                error = error_from_result(result)
            if self.closed:
                raise error or psycopg.OperationalError("the connection is closed")
