"""A slot in the test's own process; for threads of the module's graphs where it names some."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graphs.registry import Registry
from infra.settings import Settings, get_settings
from tests.events_by_hand import Writer
from tests.harness import Broker, Database, Shop
from workers.slot import Slot


@pytest.fixture
def graphs_file(settings_env: None) -> Path:
    """The project's own; a module that needs others overrides it."""
    return get_settings().graphs_path


@pytest.fixture
def slot(shop: Shop, settings_env: None, graphs_file: Path) -> Iterator[Slot]:
    made = Slot(get_settings(), Registry.load(graphs_file), "fleet")
    yield made
    made.disconnect()


@pytest.fixture
def settings(settings_env: None) -> Settings:
    """As a process of this test's fleet reads them; a module that needs others overrides it."""
    return get_settings()


@pytest.fixture
def writer(request: pytest.FixtureRequest, database: Database, broker: Broker) -> Iterator[Writer]:
    """Writes events of the module's THREAD by hand."""
    made = Writer(database, broker, request.module.THREAD)
    yield made
    made.close()
