"""Whether anybody may read what is published: else nobody pays for it.

Readers keep a key in the broker (producers/live/audience.py). It outlives them by the age that
events in a stream reach: whoever comes back with the id of one that is still there finds all
that followed it.
"""

import time

#: Seconds that a word of readers is good for, and for which some are assumed at the beginning:
#: longer than they need to say so anew to a broker that has forgotten it.
_GOOD_FOR, _AT_FIRST = 10.0, 4.0
#: Seconds between two looks for readers, while there are none.
_LOOK_EVERY = 0.25


class Audience:
    """As the publisher knows it."""

    def __init__(self, interval: float) -> None:
        """``interval``: seconds between two batches for readers."""
        self._interval = interval
        self._known_until = time.monotonic() + _AT_FIRST
        self._alone = False

    @property
    def known(self) -> bool:
        """Whether there are some, as far as that is known; else it has to be looked for."""
        return time.monotonic() < self._known_until

    @property
    def interval(self) -> float:
        """Seconds for which events are gathered."""
        return max(self._interval, _LOOK_EVERY) if self._alone else self._interval

    def found(self, there: bool) -> None:
        """The broker has been asked."""
        self._alone = not there
        if there:
            self._known_until = time.monotonic() + _GOOD_FOR
