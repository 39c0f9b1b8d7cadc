"""The graphs of one slot: each made once, or per turn where its factory takes the config.

What a factory opened (graphs.opening) is left where its graph is used no more: at the end
of the turn, or of the slot.
"""

import logging
from collections.abc import Callable
from typing import Any

from langgraph.store.base import BaseStore

from graphs.opening import Await
from graphs.registry import RegisteredGraph, Registry

log = logging.getLogger("fleet.slot")


class MadeGraphs:
    """Of one slot, in whose thread and on whose event loop everything is opened and left."""

    def __init__(self, registry: Registry, store: BaseStore, wait_for: Await) -> None:
        self._registry = registry
        self._store = store
        self._wait_for = wait_for
        self._kept: dict[str, RegisteredGraph] = {}
        self._of_turn: list[RegisteredGraph] = []

    def get(self, name: str, config: dict[str, Any]) -> RegisteredGraph:
        """The graph for a run with this config. Raises RegistryError."""
        if (kept := self._kept.get(name)) is not None:
            return kept
        found = self._registry.get(name)
        made = found.made_anew(config, self._wait_for).lent(self._store)
        if found.factory is not None and found.factory.takes_config:
            self._of_turn.append(made)
        else:
            self._kept[name] = made
        return made

    def end_turn(self) -> None:
        """Leave what was opened for this turn alone."""
        while self._of_turn:
            _leave(self._of_turn.pop())

    def close(self) -> None:
        """Leave everything."""
        self.end_turn()
        while self._kept:
            _leave(self._kept.popitem()[1])


def _leave(made: RegisteredGraph) -> None:
    leave: Callable[[], None] = made.leave
    try:
        leave()
    except Exception:
        # The turn is over, and what it has done stands.
        log.warning("what graph %s had opened was not closed in order", made.name, exc_info=True)
