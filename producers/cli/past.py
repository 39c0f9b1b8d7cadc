"""Where commands that look at a thread's past look: the fleet of the settings."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..client import Fleet
from ..past.checkpoints import Place
from ..surroundings import addresses
from .failures import note


@contextmanager
def looking_back() -> Iterator[Place]:
    """The place, as long as its Fleet is open."""
    with Fleet() as fleet:
        yield Place(fleet, addresses(None, None)[0], note)
