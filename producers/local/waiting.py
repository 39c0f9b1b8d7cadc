"""Waiting for another process, with a deadline and a sentence for when it has passed."""

import time
from collections.abc import Callable
from typing import TypeVar

from infra.errors import ServerFailed

T = TypeVar("T")


def until(fn: Callable[[], T], timeout: float, what: str, interval: float = 0.05) -> T:
    """The first truthy result of `fn`. Raises ServerFailed after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (found := fn()):
        if time.monotonic() > deadline:
            raise ServerFailed(f"Waited {timeout:g} s for {what}.", "Run the same command again.")
        time.sleep(interval)
    return found
