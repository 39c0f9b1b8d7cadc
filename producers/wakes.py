"""The client's side of the broker: it may be down or hang, and nobody waits for it."""

import threading
import time
from collections.abc import Iterable
from typing import Any

from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as BrokerHangs

from .surroundings import failpoint
from .wakeup import TIMEOUT, Wake, broker, push

# At most this many wake-ups in one round trip.
_AT_ONCE = 500


class Wakes:
    """Publishes wake-ups for accepted messages; tells whether the broker took them.

    A broker that hangs costs one caller a timeout; for as long again the others do not
    try. The messages are committed: the fleet's sweeper wakes for them.
    """

    def __init__(self, url: str) -> None:
        self._client = broker(url)
        self._lock = threading.Lock()
        self._quiet_until = 0.0

    def publish(self, accepted: Iterable[dict[str, Any]]) -> bool:
        """`accepted`: receipts of fleet.accept whose messages are pending."""
        # One wake-up per thread: it stands for all of the thread's mail.
        wakes = list(
            {
                a["thread_id"]: Wake(a["queue"], a["thread_id"], a["wake_limit"]) for a in accepted
            }.values()
        )
        if time.monotonic() < self._quiet_until:
            return False
        try:
            for start in range(0, len(wakes), _AT_ONCE):
                failpoint("publish.before")
                push(self._client, wakes[start : start + _AT_ONCE])
                failpoint("publish.after")
        except BrokerHangs:
            with self._lock:
                self._quiet_until = time.monotonic() + TIMEOUT
            return False
        except RedisError:
            return False
        return True

    def close(self) -> None:
        self._client.close()
