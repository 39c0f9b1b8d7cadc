"""docker-compose.yml and what goes with it, by reading: infra/docker/smoke.sh runs it."""

import inspect
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
every_service = pytest.mark.parametrize("name", SERVICES)


@every_service
def test_a_container_can_do_no_more_than_it_has_to(name: str) -> None:
    """No root, no capabilities, nothing to write to but volumes and memory."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] in ("postgres", "redis", "10001:10001")
    assert not service.keys() & {"privileged", "network_mode", "pid", "ipc", "devices"}


@every_service
def test_ports_are_published_to_this_machine_only(name: str) -> None:
    """And only those of Flower and the gateway."""
    ports = SERVICES[name].get("ports", [])
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert bool(ports) == (name in ("flower", "gateway"))


@every_service
def test_a_secret_is_a_file(name: str) -> None:
    """No variable or argument holds a password, and each file asked for is declared."""
    service = SERVICES[name]
    for variable, value in service.get("environment", {}).items():
        if re.search("PASSWORD|POSTGRES_URL|REDIS_URL|LOGIN|SECRET", variable):
            assert variable.endswith("_FILE"), variable
            assert value.removeprefix("/run/secrets/") in service["secrets"]
    assert set(service.get("secrets", [])) <= COMPOSE["secrets"].keys()
    assert not re.search(r"pass|secret:|://\S*:\S*@", str(service.get("command")))


@every_service
def test_a_service_is_started_again_and_looked_after(name: str) -> None:
    """All but the migrations, which run once and are waited for."""
    service = SERVICES[name]
    if name == "migrate":
        assert service["restart"] == "no"
        return
    assert service["restart"] == "unless-stopped" and "healthcheck" in service


def test_workers_wait_for_servers_and_migrations() -> None:
    """In the order that the first start needs."""
    waits = {name: facts["condition"] for name, facts in SERVICES["worker"]["depends_on"].items()}
    assert waits == {
        "postgres": "service_healthy",
        "redis": "service_healthy",
        "migrate": "service_completed_successfully",
    }
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_whatever_is_ours_waits_for_the_migrations() -> None:
    """But for the dev shop, which has no database."""
    ours = {name for name in SERVICES if SERVICES[name]["image"].startswith("threadfleet:")}
    for name in ours - {"migrate", "shop"}:
        waits = SERVICES[name]["depends_on"]["migrate"]
        assert waits == {"condition": "service_completed_successfully"}, name


def test_the_gateway_asks_who_calls() -> None:
    """It is reached from outside of its container, and starts with what secrets.sh makes."""
    given = SERVICES["gateway"]["environment"]
    assert given["FLEET_GATEWAY_AUTH"] == "on"
    assert given["FLEET_JWT_SECRET_FILE"] == "/run/secrets/jwt_secret"


def test_workers_can_be_many() -> None:
    """Nothing of theirs exists only once on a machine."""
    assert not SERVICES["worker"].keys() & {"container_name", "hostname", "ports", "volumes"}


def test_a_worker_gets_longer_to_stop_than_its_drain_takes() -> None:
    """A node of two effects, each with a call and a lookup that take all of the default time,
    and the turn's end; pauses between tries are cut short."""
    from graphs.effects import effect

    timeout = inspect.signature(effect).parameters["timeout"].default
    given = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert given >= 2 * 2 * timeout + 20


def test_servers_are_reached_from_the_inside_only() -> None:
    """Their one network is internal."""
    assert COMPOSE["networks"]["data"] == {"internal": True}
    assert SERVICES["postgres"]["networks"] == SERVICES["redis"]["networks"] == ["data"]


def test_what_must_be_kept_is_on_named_volumes() -> None:
    """Postgres's data, Redis's and the dev shop's books."""
    mounts = [v for s in SERVICES.values() for v in s.get("volumes", []) if not v.startswith("./")]
    assert {mount.partition(":")[0] for mount in mounts} == COMPOSE["volumes"].keys()


def test_images_come_from_three_bases() -> None:
    """Postgres, Redis and, for our own, Python; the dev shop is no part of a deployment."""
    assert SERVICES["postgres"]["image"] == "postgres:17"
    assert SERVICES["redis"]["image"] == "redis:7"
    dockerfile = (ROOT / "infra/docker/Dockerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {"python:3.12-slim"}
    assert SERVICES["shop"]["profiles"] == ["shop"]
    assert not any("pull_policy" in service for service in SERVICES.values())


def test_redis_loses_nothing_and_evicts_nothing() -> None:
    """And asks for its password."""
    script = (ROOT / "infra/docker/redis.sh").read_text()
    for line in ("appendonly yes", "maxmemory-policy noeviction", "requirepass $password"):
        assert f"\n{line}\n" in script


def secrets_made(folder: Path) -> dict[str, str]:
    done = subprocess.run(
        [ROOT / "infra/docker/secrets.sh", folder], capture_output=True, text=True, timeout=10
    )
    assert done.returncode == 0 and done.stdout == "", done.stderr
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_script_makes_every_secret_once(tmp_path: Path) -> None:
    """All that the file names, each password in its address; a second run changes none."""
    folder = tmp_path / "secrets"
    made = secrets_made(folder)
    assert made.keys() == COMPOSE["secrets"].keys()
    assert f":{made['postgres_password']}@postgres:5432/fleet" in made["postgres_url"]
    assert f":{made['redis_password']}@redis:6379/" in made["redis_url"]
    passwords = {made["postgres_password"], made["redis_password"], made["flower_login"][6:]}
    passwords.add(made["jwt_secret"])
    assert len(passwords) == 4 and all(re.fullmatch("[0-9a-f]{48}", p) for p in passwords)
    assert secrets_made(folder) == made


def test_secrets_are_read_by_containers_and_by_no_other_user(tmp_path: Path) -> None:
    """The folder lets nobody in; the files, bound one by one, let any user of a container."""
    folder = tmp_path / "secrets"
    secrets_made(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}


def test_secrets_get_into_neither_git_nor_the_image() -> None:
    """Nor does anything else that the image is not made from."""
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    assert all((ROOT / line[1:]).exists() for line in lines if line.startswith("!"))
