"""Ending tasks for certain.

Up to Python 3.11 `asyncio.wait_for`, which redis-py uses, drops a cancellation that comes when
what it waits for is done already: https://github.com/python/cpython/issues/86296
"""

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_AFTER = 0.2


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel them until they are done; what they raise is not raised here."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=_AGAIN_AFTER)
        for task in done:
            if not task.cancelled():
                task.exception()
