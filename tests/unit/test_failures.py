"""Which exceptions of a node are tried again."""

import sqlite3
import urllib.error
import weakref
from email.message import Message

import httpx
import psycopg
import pytest
import requests
from langgraph.errors import EmptyInputError, GraphRecursionError, InvalidUpdateError

from graphs.errors import EffectFailed
from graphs.faults import Permanent, Transient
from workers.failures import describe, give_back, judged, transient

_REQUEST = httpx.Request("GET", "http://127.0.0.1/")


class Unforeseen(Exception):
    """Of a library that nobody here has heard of."""


class _Answered(Exception):
    """As the clients of model providers have them: a status of its own."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"Error code: {status_code}")
        self.status_code = status_code


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
        requests.ConnectionError(),
        urllib.error.URLError(ConnectionRefusedError()),
        urllib.error.HTTPError("http://x", 503, "x", Message(), None),
        Transient(),
        Unforeseen(),
    ],
)
def test_what_may_pass_is_transient(exc: BaseException) -> None:
    """Network, overload, and what nobody knows: the same turn may succeed later."""
    assert transient(exc)


@pytest.mark.parametrize(
    "exc",
    [
        ValueError(),
        KeyError(),
        AttributeError(),
        AssertionError(),
        OSError(),
        SystemExit(1),
        GeneratorExit(),
        _status(404),
        _status(409),
        _Answered(400),
        urllib.error.HTTPError("http://x", 404, "x", Message(), None),
        httpx.UnsupportedProtocol("x"),
        httpx.InvalidURL("x"),
        psycopg.errors.UndefinedTable(),
        psycopg.errors.UniqueViolation(),
        sqlite3.ProgrammingError(),
        Permanent(),
        EffectFailed("x.y", "fr_1", 402, "refused"),
        InvalidUpdateError(),
        EmptyInputError(),
        GraphRecursionError(),
    ],
)
def test_what_will_not_pass_is_not(exc: BaseException) -> None:
    """A fault of code or input fails the message at once."""
    assert not transient(exc)


def test_description_is_one_storable_text() -> None:
    """NUL and lone surrogates never reach Postgres; long texts are cut."""
    text = describe(ValueError("a\x00b\ud800" + "x" * 5000))
    assert text.startswith("ValueError: a\ufffdb?") and len(text) == 2000


def test_out_of_memory_is_quarantined_after_as_many_attempts_as_crashes() -> None:
    """It may take the whole process next time."""
    assert [judged(MemoryError(), crashes, 3).kind for crashes in (1, 2, 3)] == [
        "retry",
        "retry",
        "dead",
    ]


def test_what_a_node_took_is_given_back_when_memory_has_run_out() -> None:
    """While its exception is still at hand: the turn's end needs memory, too."""

    class Large:
        pass

    taken: list[weakref.ref[Large]] = []

    def node() -> None:
        large = Large()
        taken.append(weakref.ref(large))
        raise MemoryError

    with pytest.raises(MemoryError) as caught:
        node()
    assert taken[0]() is not None
    give_back(caught.value)
    assert taken[0]() is None
