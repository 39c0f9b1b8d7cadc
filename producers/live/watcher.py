"""One reader's place at a topic: a bounded queue of what it has not taken yet."""

import asyncio
from collections import deque

from .events import Event, Lagging
from .follower import Item
from .ids import EventId
from .snapshot import Snapshot


class Watcher:
    """limit: items that may wait; one more and the reader is cut off."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[Item] = deque()
        self._stirred = asyncio.Event()
        self._end: Exception | None = None
        self._ended = False
        self._lagging = False
        #: The newest event that the reader has; the same event is not given twice.
        self.last: EventId | None = None

    def put(self, item: Item) -> None:
        if self._ended or self._lagging:
            return
        if len(self._waiting) >= self._limit:
            # What is left out now would be missing: it comes back for all of it.
            self._lagging = True
            self._waiting.clear()
        else:
            self._waiting.append(item)
        self._stirred.set()

    def end(self, error: Exception | None = None) -> None:
        """Nothing comes any more."""
        self._end, self._ended = error, True
        self._stirred.set()

    async def next(self) -> Item | Lagging | None:
        """None at the end. Raises what ended it."""
        while True:
            while self._waiting:
                item = self._waiting.popleft()
                if self._fits(item):
                    return item
            if self._lagging:
                return Lagging(self.last)
            if self._ended:
                if self._end is not None:
                    raise self._end
                return None
            self._stirred.clear()
            await self._stirred.wait()

    def _fits(self, item: Item) -> bool:
        """Whether the reader has not got it yet; it has then."""
        if isinstance(item, Snapshot):
            self.last = item.head
            return True
        assert isinstance(item, Event)
        if self.last is not None and item.id <= self.last:
            return False
        self.last = item.id
        return True
