"""Whether anybody may read what is published: else it is let go.

Readers keep a key in the broker (producers/live/attendance.py), which outlives them by the age
that events reach.
"""

import time

#: Seconds that a word of readers is good for.
_GOOD_FOR = 10.0
#: Seconds for which some are assumed where none are known yet or any more: longer than they need
#: to come back to a broker that was away and has forgotten them.
_ASSUMED_FOR = 8.0
#: Seconds between two looks for readers, while there are none.
_LOOK_EVERY = 0.25


class Audience:
    """As the publisher knows it."""

    def __init__(self, interval: float) -> None:
        """``interval``: seconds between two batches for readers."""
        self._interval = interval
        self._until = time.monotonic() + _ASSUMED_FOR
        self._were_there = False
        self._alone = False

    @property
    def assumed(self) -> bool:
        """Whether there are some, as far as is known; else it has to be looked for."""
        return time.monotonic() < self._until

    @property
    def interval(self) -> float:
        """Seconds for which events are gathered."""
        return max(self._interval, _LOOK_EVERY) if self._alone else self._interval

    def found(self, there: bool) -> bool:
        """The broker has been asked; whether some are to be assumed now."""
        if there or self._were_there:
            self._until = time.monotonic() + (_GOOD_FOR if there else _ASSUMED_FOR)
        self._alone = not there and not self._were_there
        self._were_there = there
        return not self._alone
