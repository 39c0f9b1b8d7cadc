"""Which exceptions of a node are tried again."""

import httpx
import psycopg
import pytest

from workers.failures import describe, transient

_REQUEST = httpx.Request("GET", "http://127.0.0.1/")


def _status(code: int) -> httpx.HTTPStatusError:
    return httpx.HTTPStatusError("x", request=_REQUEST, response=httpx.Response(code))


@pytest.mark.parametrize(
    "exc",
    [
        ConnectionResetError(),
        TimeoutError(),
        httpx.ReadTimeout("x"),
        psycopg.OperationalError(),
        _status(503),
        _status(429),
        MemoryError(),
    ],
)
def test_what_may_pass_is_transient(exc: BaseException) -> None:
    """Network, overload and memory: the same turn may succeed later."""
    assert transient(exc)


@pytest.mark.parametrize("exc", [ValueError(), KeyError(), _status(404), SystemExit(1), OSError()])
def test_what_will_not_pass_is_not(exc: BaseException) -> None:
    """A fault of code or input fails the message at once."""
    assert not transient(exc)


def test_description_is_one_storable_text() -> None:
    """NUL and lone surrogates never reach Postgres; long texts are cut."""
    text = describe(ValueError("a\x00b\ud800" + "x" * 5000))
    assert text.startswith("ValueError: a\ufffdb?") and len(text) == 2000
