"""Messages whose request is under way at this gateway, by their idempotency key."""

from collections.abc import Iterator
from contextlib import contextmanager

from .problems import Problem


class InFlight:
    """A second request with the same key and another payload is told to wait for the first
    one's end: which of them counts is not known before.

    Of one gateway. What is under way at another one is waited for in Postgres, which takes one
    of the two and refuses the other.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], tuple[str, int]] = {}

    @contextmanager
    def held(self, thread_id: str, message_id: str, payload_hash: str) -> Iterator[None]:
        """Raises Problem, 409."""
        place = (thread_id, message_id)
        first, count = self._under_way.get(place, (payload_hash, 0))
        if first != payload_hash:
            raise Problem(
                409,
                "in_flight",
                "In flight",
                f"A request with the Idempotency-Key {message_id} and another payload is under "
                "way.",
                "Send the same payload again, or another key for another message.",
                headers={"Retry-After": "1"},
                thread_id=thread_id,
                message_id=message_id,
            )
        self._under_way[place] = (first, count + 1)
        try:
            yield
        finally:
            first, count = self._under_way[place]
            if count > 1:
                self._under_way[place] = (first, count - 1)
            else:
                del self._under_way[place]
