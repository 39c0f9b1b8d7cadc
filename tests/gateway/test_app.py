"""The gateway as a whole: it serves, says what is wrong as problems, and ends."""

import socket

import httpx
import pytest

from producers.gateway.serve import listening
from tests.gateway.serving import Gateway, problem, token


def test_it_says_that_it_lives_and_can_serve(client: httpx.Client) -> None:
    """/healthz of the process, /readyz of the servers behind it."""
    assert client.get("/healthz").json() == {"status": "ok"}
    ready = client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["warnings"] == []


def test_unknown_paths_and_methods_are_problems(client: httpx.Client) -> None:
    """404 and 405, like all else that goes wrong."""
    problem(client.get("/nowhere"), 404, "not_found")
    wrong = client.put("/healthz")
    problem(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "GET"


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://127.0.0.1:1"])
def test_a_foreign_page_changes_nothing(gateway: Gateway, origin: str) -> None:
    """403 for whatever is no GET, on every path."""
    with gateway.client(Origin=origin) as client:
        problem(client.post("/anything", json={}), 403, "foreign_origin")
        assert client.get("/healthz").status_code == 200


def test_a_page_of_its_own_may(gateway: Gateway) -> None:
    """Its Origin is the Host that it asks."""
    with gateway.client(Origin=gateway.url) as client:
        problem(client.post("/anything", json={}), 404, "not_found")


def test_without_authentication_a_foreign_name_of_this_machine_is_refused(
    gateway: Gateway,
) -> None:
    """A page whose own name was made to lead here is same-origin to its browser."""
    with gateway.client(Host="evil.test") as client:
        problem(client.get("/healthz"), 403, "unknown_host")


def test_tokens_of_the_tests_are_taken(guarded: Gateway) -> None:
    """Keys and JWTs; used by the tests of all doors."""
    assert guarded.key("producer").startswith("fleet_") and token().count(".") == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_answer_is_sent_at_once(host: str) -> None:
    """Its connections are known to be TCP, so that asyncio sets TCP_NODELAY: else the second
    packet of an answer, or a token of a stream, waits for the first one's ACK."""
    with listening(host, 0) as sock, socket.create_connection(sock.getsockname()[:2]):
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
