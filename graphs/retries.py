"""How often an effect is tried within one turn, and how long it waits in between."""

from dataclasses import dataclass

from tenacity import RetryCallState, Retrying, wait_exponential_jitter
from tenacity.stop import stop_after_attempt

from graphs import faults


@dataclass(frozen=True, slots=True)
class Retry:
    """Tries within one turn: at most ``attempts`` calls, at most ``max_wait`` seconds apart."""

    attempts: int = 5
    max_wait: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.max_wait < 0:
            raise ValueError("Retry needs attempts >= 1 and max_wait >= 0")


class Tries:
    """tenacity's stop and wait for one call: exponential with jitter, Retry-After observed."""

    def __init__(self, retry: Retry) -> None:
        self._max_wait = retry.max_wait
        self._stop = stop_after_attempt(retry.attempts)
        self._wait = wait_exponential_jitter(multiplier=0.5, max=retry.max_wait, jitter=1)
        self._state = RetryCallState(Retrying(), None, (), {})

    def wait(self, exc: Exception) -> float | None:
        """Seconds until the next try; None when the slot is better given back."""
        asked = faults.retry_after(exc) or 0.0
        if self._stop(self._state) or asked > self._max_wait:
            return None
        seconds = max(asked, min(self._wait(self._state), self._max_wait))
        self._state.prepare_for_next_attempt()
        return seconds
