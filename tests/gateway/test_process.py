"""`fleet gateway` as a process, and `fleet keys`."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.devservers import Child, Stack
from tests.acceptance.commands import FLEET
from tests.gateway.serving import AUDIENCE, ISSUER, SECRET, token
from tests.harness import clean_environment, eventually

JWT = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


def run(*args: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    env = clean_environment(**settings)
    return subprocess.run([*FLEET, *args], env=env, capture_output=True, text=True, timeout=60)


Serve = Callable[..., tuple[Child, str]]


@pytest.fixture
def serve(stack: Stack, fleet_settings: dict[str, Any], tmp_path: Path) -> Iterator[Serve]:
    """Starts `fleet gateway --port 0` with these settings; gives the process and its URL."""
    started: list[Child] = []

    def start(*args: str, **settings: Any) -> tuple[Child, str]:
        env = clean_environment(**fleet_settings | settings)
        argv = [*FLEET, "gateway", "--port", "0", "--json", *args]
        log = tmp_path / f"gateway-{len(started)}.log"
        child = stack.spawn("gateway", argv, env, log, cwd=tmp_path)
        started.append(child)

        def url() -> str:
            assert child.poll() is None, child.log()
            lines = [line for line in child.log().splitlines() if '"url"' in line]
            return str(json.loads(lines[0])["url"]) if lines else ""

        return child, eventually(url, 40)

    yield start
    for child in started:
        child.kill_group()
        child.wait(5)


def test_it_serves_until_it_is_told_to_end(serve: Serve) -> None:
    """SIGTERM is a good end: exit code 0, though a client holds its connection open."""
    child, url = serve(gateway_auth="off")
    with httpx.Client(base_url=url) as client:
        assert client.get("/readyz").json()["status"] == "ready"
        child.terminate()
        assert child.wait(20) == 0
    assert "Traceback" not in child.log()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"gateway_auth": "off", "gateway_host": "0.0.0.0"}, "FLEET_GATEWAY_AUTH=off"),
        ({"gateway_auth": "off", "gateway_host": "::"}, "FLEET_GATEWAY_AUTH=off"),
        ({}, "there is no API key"),
        ({**JWT, "jwt_issuer": None}, "FLEET_JWT_ISSUER is not set"),
        ({**JWT, "jwt_audience": None}, "FLEET_JWT_AUDIENCE is not set"),
        ({**JWT, "jwt_secret": "short"}, "can be guessed"),
        ({**JWT, "gateway_host": "203.0.113.7"}, "can't listen on 203.0.113.7"),
        ({**JWT, "gateway_host": "no such host"}, "can't listen on no such host"),
    ],
)
def test_what_would_leave_the_fleet_open_is_refused(
    fleet_settings: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    """With the reason, in one line, before anything listens; a setting: exit code 2."""
    done = run("gateway", "--port", "0", **fleet_settings | settings)
    assert done.returncode == 2 and done.stdout == ""
    assert reason in done.stderr and done.stderr.count("\n") == 1


def test_a_taken_port_is_said_so(fleet_settings: dict[str, Any]) -> None:
    """Like the other servers' ports."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("gateway", "--port", port, **fleet_settings, gateway_auth="off")
    assert done.returncode == 1 and f"Port {port}, wanted for the gateway" in done.stderr


def test_a_key_is_made_shown_once_used_and_revoked(
    serve: Serve, fleet_settings: dict[str, Any]
) -> None:
    """By the command line, for a gateway that runs with keys alone."""
    made = run("keys", "create", "crm", "--role", "viewer", "--tenant", "acme", **fleet_settings)
    assert made.returncode == 0 and "not shown again" in made.stderr
    key = made.stdout.strip()
    _, url = serve()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}) as client:
        assert client.get("/threads").json() == {"threads": []}
        listed = run("keys", "list", "--json", **fleet_settings)
        [row] = json.loads(listed.stdout)["keys"]
        assert (row["name"], row["tenant"], row["roles"]) == ("crm", "acme", ["viewer"])
        assert key not in listed.stdout and row["state"] == "valid"
        ended = run("keys", "revoke", row["key_id"], **fleet_settings)
        assert ended.returncode == 0 and "revoked" in ended.stdout
        assert client.get("/threads").status_code == 401
    assert json.loads(run("keys", "list", "--json", **fleet_settings).stdout) == {"keys": []}
    every = json.loads(run("keys", "list", "--all", "--json", **fleet_settings).stdout)["keys"]
    assert [row["state"] for row in every] == ["revoked"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["create", "crm"], 2),
        (["create", "crm", "--role", "boss"], 2),
        (["create", "", "--role", "viewer"], 2),
        (["create", "crm", "--role", "viewer", "--tenant", "a/b"], 2),
        (["create", "crm", "--role", "viewer", "--days", "-1"], 2),
        (["revoke", "0123456789ab"], 2),
    ],
)
def test_a_key_that_can_not_be_is_refused(
    fleet_settings: dict[str, Any], args: list[str], code: int
) -> None:
    """In one line; nothing is made."""
    done = run("keys", *args, **fleet_settings)
    assert done.returncode == code and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert json.loads(run("keys", "list", "--json", **fleet_settings).stdout) == {"keys": []}


# Servers that are away


@pytest.fixture
def stopped(stack: Stack) -> Iterator[Callable[[int], None]]:
    """Stops a process by its pid; all go on at the end."""
    pids: list[int] = []

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        pids.append(pid)

    yield stop
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_without_postgres_nothing_is_accepted_and_it_is_said_so(tmp_path: Path) -> None:
    """503 and when to come back, on every door; the process lives on."""
    from tests.gateway.serving import Gateway, problem

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        away = f"postgresql://fleet:secret@127.0.0.1:{sock.getsockname()[1]}/fleet"
    servers = {"postgres_url": away, "redis_url": "redis://127.0.0.1:1/0", "data_dir": tmp_path}
    with Gateway(**servers, **JWT) as gateway:
        with gateway.client(token(roles=["operator"])) as client:
            for method, path, body in [
                ("POST", "/threads/refund/A1/messages", {"input": {"user_id": "u"}}),
                ("GET", "/threads/refund/A1", None),
                ("GET", "/threads/refund/A1/history", None),
                ("GET", "/threads", None),
                ("POST", "/threads/refund/A1/cancel", None),
                ("POST", "/threads/refund/A1/questions/q1/answer", {"value": 1}),
            ]:
                headers = {"Idempotency-Key": "m1"}
                answer = client.request(method, path, json=body, headers=headers)
                found = problem(answer, 503, "fleet_unavailable")
                assert int(answer.headers["retry-after"]) > 0
                assert "secret" not in answer.text and found["hint"]
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
            assert ready.json()["warnings"] == ["The broker is not reachable."]
            assert client.get("/healthz").status_code == 200
        with gateway.client("fleet_0123456789ab_" + "x" * 43) as client:
            problem(client.get("/threads"), 503, "fleet_unavailable")


def test_a_broker_that_is_away_is_a_warning(fleet_settings: dict[str, Any], database: Any) -> None:
    """What is accepted is kept all the same."""
    from tests.gateway.serving import Gateway

    away = fleet_settings | {"redis_url": "redis://127.0.0.1:1/0"}
    with Gateway(**away, gateway_auth="off") as gateway, gateway.client() as client:
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["warnings"]) == (
            200,
            ["The broker is not reachable."],
        )
        sent = client.post(
            "/threads/refund/A1/messages",
            json={"input": {"user_id": "u_42"}},
            headers={"Idempotency-Key": "m1"},
        )
        assert (sent.status_code, sent.json()["published"]) == (202, False)
    assert database.value("SELECT count(*) FROM fleet.messages") == 1
