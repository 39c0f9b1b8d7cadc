"""The feed of one claim: what it has told and the publisher has not sent yet."""

from collections.abc import Callable
from typing import Any


class Feed:
    """The publisher's lock guards it."""

    __slots__ = ("epoch", "events", "last", "place", "thread_id")

    def __init__(self, thread_id: str, epoch: int, place: Callable[[], str]) -> None:
        self.thread_id = thread_id
        self.epoch = epoch
        self.place = place
        self.events: list[dict[str, Any]] = []
        #: The id of the last event of the batch before.
        self.last: str | None = None

    def take(self) -> list[dict[str, Any]]:
        """The events, of which the first names the one before it, and which are then gone."""
        events, self.events = self.events, []
        if self.last is not None:
            events[0]["after"] = self.last
        self.last = events[-1]["id"]
        return events
