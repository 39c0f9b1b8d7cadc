"""Servers and gateways that are away, hang or die: what was accepted is kept, and a caller is
told what is known."""

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import Serve
from tests.gateway.serving import AUDIENCE, ISSUER, SECRET, Gateway, problem, token
from tests.harness import Database, eventually
from tests.integration.mailbox import INPUT, accepted

JWT = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
A1 = "/threads/refund/A1"
NAMED = {"Idempotency-Key": "m1"}


def test_without_postgres_nothing_is_accepted_and_it_is_said_so(tmp_path: Path) -> None:
    """503 and when to come back, on every door; the process lives on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        away = f"postgresql://fleet:secret@127.0.0.1:{sock.getsockname()[1]}/fleet"
    servers = {"postgres_url": away, "redis_url": "redis://127.0.0.1:1/0", "data_dir": tmp_path}
    with Gateway(**servers, **JWT) as gateway:
        with gateway.client(token(roles=["operator"])) as client:
            for method, path, body in [
                ("POST", f"{A1}/messages", {"input": INPUT}),
                ("GET", A1, None),
                ("GET", f"{A1}/history", None),
                ("GET", f"{A1}/messages", None),
                ("GET", f"{A1}/questions", None),
                ("GET", "/threads", None),
                ("POST", f"{A1}/cancel", None),
                ("POST", f"{A1}/questions/q1/answer", {"value": 1}),
            ]:
                answer = client.request(method, path, json=body, headers=NAMED)
                found = problem(answer, 503, "fleet_unavailable")
                assert int(answer.headers["retry-after"]) > 0
                assert "secret" not in answer.text and found["hint"]
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
            assert ready.json()["warnings"] == ["The broker is not reachable."]
            assert client.get("/healthz").status_code == 200
        with gateway.client("fleet_0123456789ab_" + "x" * 43) as client:
            problem(client.get("/threads"), 503, "fleet_unavailable")


def test_a_broker_that_is_away_is_a_warning(
    fleet_settings: dict[str, Any], database: Database
) -> None:
    """What is accepted is kept all the same."""
    away = fleet_settings | {"redis_url": "redis://127.0.0.1:1/0"}
    with Gateway(**away, gateway_auth="off") as gateway, gateway.client() as client:
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["warnings"] == ["The broker is not reachable."]
        sent = client.post(f"{A1}/messages", json={"input": INPUT}, headers=NAMED)
        assert (sent.status_code, sent.json()["published"]) == (202, False)
    assert accepted(database) == 1


def test_an_unknown_outcome_is_said_so_and_sent_again_safely(
    fleet_settings: dict[str, Any], database: Database
) -> None:
    """Postgres went silent over it: 503 with the name to send it again under."""
    with (
        Gateway(**fleet_settings, gateway_auth="off", client_timeout=3) as gateway,
        gateway.client() as client,
    ):
        with database.connect() as conn:
            conn.execute("BEGIN")
            conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('refund:A1', 1))")
            answer = client.post(f"{A1}/messages", json={"input": INPUT}, headers=NAMED)
            found = problem(answer, 503, "outcome_unknown")
            assert found["message_id"] == "m1" and "same message_id" in found["hint"]
            assert int(answer.headers["retry-after"]) > 0
            conn.execute("COMMIT")
        again = client.post(f"{A1}/messages", json={"input": INPUT}, headers=NAMED)
        assert again.status_code == 202
    assert accepted(database) == 1


def test_a_gateway_killed_after_the_commit_has_kept_the_message(
    serve: Serve, database: Database
) -> None:
    """Its caller hears nothing, sends it again to another one, and it counts once."""
    child, url = serve(gateway_auth="off", failpoints="accept.after_commit=kill")
    with pytest.raises(httpx.TransportError):
        httpx.post(f"{url}{A1}/messages", json={"input": INPUT}, headers=NAMED, timeout=30)
    assert child.wait(10) == -9
    _, other = serve(gateway_auth="off")
    again = httpx.post(f"{other}{A1}/messages", json={"input": INPUT}, headers=NAMED, timeout=30)
    assert (again.status_code, again.json()["outcome"]) == (202, "duplicate")
    assert accepted(database) == 1


def test_a_client_that_hangs_up_has_sent_its_message(gateway: Gateway, database: Database) -> None:
    """It does not wait for the answer; what it sent is accepted."""
    body = json.dumps({"input": INPUT}).encode()
    head = [
        f"POST {A1}/messages HTTP/1.1",
        f"Host: 127.0.0.1:{gateway.port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Idempotency-Key: m1",
    ]
    with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
        sock.sendall("\r\n".join([*head, "", ""]).encode() + body)
    eventually(lambda: accepted(database) == 1)
