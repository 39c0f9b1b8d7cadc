"""Gateways over the test's servers; `client` is an HTTP client of the open one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphs.registry import Registry
from infra.devservers import Child, Stack
from infra.settings import get_settings
from tests.gateway.serving import JWT, Gateway
from tests.harness import Shop, clean_environment, eventually
from tests.warm_commands import FLEET
from workers.slot import Slot


@pytest.fixture
def gateway(fleet_settings: dict[str, Any]) -> Iterator[Gateway]:
    """Without authentication."""
    with Gateway(**fleet_settings, gateway_auth="off") as gateway:
        yield gateway


@pytest.fixture
def guarded(fleet_settings: dict[str, Any]) -> Iterator[Gateway]:
    """With authentication: `guarded.key("producer", tenant="acme")` makes an API key,
    `serving.token("u_1", tenant="acme")` a JWT."""
    with Gateway(**fleet_settings, **JWT) as gateway:
        yield gateway


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


@pytest.fixture
def graphs_file(settings_env: None) -> Path:
    """The project's own; a module that needs others overrides it."""
    return get_settings().graphs_path


@pytest.fixture
def slot(shop: Shop, settings_env: None, graphs_file: Path) -> Iterator[Slot]:
    """A worker's slot in this process; see tests/integration/conftest.py."""
    made = Slot(get_settings(), Registry.load(graphs_file), "fleet")
    yield made
    made.disconnect()


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
