"""Gateways over the test's servers; `client` is an HTTP client of the open one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from graphs.registry import Registry
from infra.settings import get_settings
from tests.gateway.serving import AUDIENCE, ISSUER, SECRET, Gateway
from tests.harness import Shop
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
    jwt = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    with Gateway(**fleet_settings, **jwt) as gateway:
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
