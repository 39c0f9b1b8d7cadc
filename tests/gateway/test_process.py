"""`fleet gateway` as a process, and `fleet keys`."""

import json
import socket
import subprocess
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import Serve
from tests.gateway.serving import AUDIENCE, ISSUER, SECRET
from tests.harness import clean_environment
from tests.warm_commands import FLEET

JWT = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}


def run(*args: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    env = clean_environment(**settings)
    return subprocess.run([*FLEET, *args], env=env, capture_output=True, text=True, timeout=60)


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
