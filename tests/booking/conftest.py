"""The slot is that of tests/integration."""

import pytest

from producers import Fleet
from tests.booking.talk import NOW, Talk, at
from tests.harness import Database
from tests.integration.conftest import graphs_file, slot
from workers.slot import Slot

__all__ = ["graphs_file", "slot"]


@pytest.fixture
def talk(slot: Slot, fleet: Fleet, database: Database) -> Talk:
    """With the booking assistant, by its rules."""
    at(database, NOW)
    return Talk(slot, fleet, database)
