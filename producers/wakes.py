"""The client's side of the broker: it may be down or hang, and nobody waits for it."""

import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .errors import NotConfigured
from .forks import remade_after_fork
from .surroundings import failpoint

if TYPE_CHECKING:
    from redis import Redis

    from .wakeup import Wake

# At most this many wake-ups in one round trip.
_AT_ONCE = 500


class Wakes:
    """Publishes wake-ups for accepted messages; tells whether the broker took them.

    A broker that hangs costs one caller a timeout; for as long again the others do not
    try. The messages are committed: the fleet's sweeper wakes for them. redis is
    imported with the first wake-up, as who only looks on needs none.
    """

    def __init__(self, url: str) -> None:
        self._url = _usable(url)
        self._quiet_until = 0.0
        self._start_afresh()
        remade_after_fork(self)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._client: Redis | None = None

    def publish(self, accepted: Iterable[dict[str, Any]]) -> bool:
        """Wake for these; False also where there are none.

        accepted: what fleet.accept said of messages that are pending.
        """
        from redis.exceptions import RedisError
        from redis.exceptions import TimeoutError as BrokerHangs

        from .wakeup import TIMEOUT, Wake, push

        # One wake-up per thread: it stands for all of the thread's mail.
        threads = {a["thread_id"]: a for a in accepted}
        wakes = [Wake(a["queue"], t, a["wake_limit"]) for t, a in threads.items()]
        if not wakes or time.monotonic() < self._quiet_until:
            return False
        try:
            for start in range(0, len(wakes), _AT_ONCE):
                some = wakes[start : start + _AT_ONCE]
                failpoint("publish.before", partial(_place, some))
                push(self._broker(), some)
                failpoint("publish.after", partial(_place, some))
        except BrokerHangs:
            self._quiet_until = time.monotonic() + TIMEOUT
            return False
        except (RedisError, OSError, ValueError):
            # Whatever is wrong with the broker, the messages are accepted.
            return False
        return True

    def _broker(self) -> "Redis":
        from .wakeup import broker

        with self._lock:
            if self._client is None:
                self._client = broker(self._url)
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()


def _place(wakes: "list[Wake]") -> str:
    """Where a failpoint is met: the first of the threads."""
    return wakes[0].thread_id


def _usable(url: str) -> str:
    """Refused here, since after the accept it would be too late."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("redis", "rediss", "unix") and (
            parts.port is None or parts.port > 0
        )
    except ValueError:
        good = False
    if not good:
        raise NotConfigured(
            "The broker's address can't be used.", "It looks like redis://:password@host:6379/0."
        )
    return url
