"""How often one caller may come: counted per gateway, in its memory, so that no outage of a
server of ours decides about it.
"""

import math
import time

from limits import RateLimitItem, RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import SlidingWindowCounterRateLimiter

from infra.settings import Settings

from .principals import Principal
from .problems import Problem


class Limits:
    """Counts what callers do. `over` is for any door: seconds to wait, or None."""

    def __init__(self, settings: Settings) -> None:
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._requests = RateLimitItemPerMinute(settings.gateway_rate)

    def over(self, limit: RateLimitItem, *who: str) -> float | None:
        """Count one; None if it is within the limit, else seconds until the next one may be."""
        if self._limiter.hit(limit, *who):
            return None
        reset = self._limiter.get_window_stats(limit, *who).reset_time
        return max(reset - time.time(), 0.1)

    def require(self, principal: Principal) -> None:
        """Count a request of the caller's. Raises Problem, 429 with Retry-After."""
        who = ("caller", principal.tenant, principal.user or "", principal.name)
        wait = self.over(self._requests, *who)
        if wait is not None:
            raise too_many(
                wait, f"{principal.name} sends more than {self._requests.amount} requests a minute."
            )


def too_many(wait: float, detail: str) -> Problem:
    seconds = math.ceil(wait)
    return Problem(
        429,
        "too_many_requests",
        "Too many requests",
        detail,
        f"Come back in {seconds} s.",
        headers={"Retry-After": str(seconds)},
    )
