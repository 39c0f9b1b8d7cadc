"""What exceptions of HTTP clients and of the standard library say about an effect."""

import socket
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
import requests

from graphs import faults
from graphs.faults import Permanent, Transient, classify, describe, retry_after, status_of
from tests.unit.test_effects import refused

POLICIES = ["resend", "lookup", "park"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("failure", "verdict"),
    [
        (refused(400), "permanent"),
        (refused(401), "permanent"),
        (refused(404), "permanent"),
        (refused(422), "permanent"),
        (refused(408), "transient"),
        (refused(425), "never_sent"),
        (refused(429), "never_sent"),
        (refused(500), "transient"),
        (refused(503), "transient"),
        (refused(302), "unknown"),
        (httpx.ConnectError(""), "never_sent"),
        (httpx.ConnectTimeout(""), "never_sent"),
        (httpx.PoolTimeout(""), "never_sent"),
        (httpx.ReadTimeout(""), "transient"),
        (httpx.WriteError(""), "transient"),
        (httpx.RemoteProtocolError(""), "transient"),
        (httpx.UnsupportedProtocol(""), "unknown"),
        (httpx.InvalidURL(""), "unknown"),
        (requests.ConnectTimeout(), "never_sent"),
        (requests.ReadTimeout(), "transient"),
        (requests.ConnectionError(), "transient"),
        (ConnectionRefusedError(), "never_sent"),
        (socket.gaierror(), "never_sent"),
        (ConnectionResetError(), "transient"),
        (BrokenPipeError(), "transient"),
        (TimeoutError(), "transient"),
        (Transient(), "transient"),
        (Permanent(), "permanent"),
        (ValueError(), "unknown"),
        (FileNotFoundError(), "unknown"),
        (KeyError("x"), "unknown"),
    ],
)
def test_verdicts(failure: Exception, verdict: str, policy: str) -> None:
    """The same for every policy."""
    assert classify(failure, policy) == verdict


def test_409_is_in_flight_where_the_outside_knows_request_ids() -> None:
    """And a refusal where it doesn't."""
    assert [classify(refused(409), p) for p in POLICIES] == ["transient", "transient", "permanent"]


def test_wrapped_errors_are_looked_through() -> None:
    """Clients raise their own from the transport's."""

    class ClientError(Exception):
        pass

    for cause, verdict in ((refused(422), "permanent"), (httpx.ConnectError(""), "never_sent")):
        try:
            try:
                raise cause
            except Exception as exc:
                raise ClientError("wrapped") from exc
        except ClientError as wrapped:
            assert classify(wrapped, "park") == verdict


def test_status_of_clients_without_httpx() -> None:
    """By attribute: openai's status_code, requests' response."""

    class StatusError(Exception):
        status_code = 429

    response = requests.Response()
    response.status_code = 503
    assert status_of(StatusError()) == 429
    assert status_of(requests.HTTPError(response=response)) == 503
    assert status_of(ValueError()) is None


@pytest.mark.parametrize(
    ("said", "seconds"), [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("soon", None), ("nan", 0.0)]
)
def test_retry_after_in_seconds(said: str, seconds: float | None) -> None:
    """Nonsense says nothing."""
    assert retry_after(refused(429, **{"Retry-After": said})) == seconds


def test_retry_after_as_a_date() -> None:
    """Past dates ask for no wait."""
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert retry_after(refused(429, **{"Retry-After": soon})) == pytest.approx(30, abs=2)
    past = format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)
    assert retry_after(refused(503, **{"Retry-After": past})) == 0.0
    assert retry_after(Transient(retry_after=7)) == 7
    assert retry_after(ValueError()) is None


def test_descriptions_are_one_short_clean_line() -> None:
    """With what the outside answered."""
    text = describe(refused(422, "no\x00such\n order" + "x" * 1000))
    assert text.startswith("HTTPStatusError: 422 [no\ufffdsuch order")
    assert len(text) == faults._LONGEST_DETAIL
    assert describe(ValueError()) == "ValueError"


def test_real_sockets_raise_what_is_told_here() -> None:
    """A closed port was never sent to; a server that hangs up may have acted."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]

    def hang_up() -> None:
        connection, _ = server.accept()
        connection.recv(100)
        connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    verdicts: list[Any] = []
    for _ in range(2):
        with pytest.raises(httpx.TransportError) as caught:
            httpx.post(f"http://127.0.0.1:{port}/", timeout=5)
        verdicts.append(classify(caught.value, "park"))
        thread.join(5)
        server.close()
    assert verdicts == ["transient", "never_sent"]
