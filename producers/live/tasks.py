"""Cancelling for certain.

Up to Python 3.11 `asyncio.wait_for`, which redis-py uses, drops a cancellation that comes when
what it waits for is done already: https://github.com/python/cpython/issues/86296
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
_AGAIN_AFTER = 0.2
#: The loop itself holds its tasks weakly.
_under_way: "set[asyncio.Task[Any]]" = set()


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; a caller who is cancelled leaves at once, while it comes to its end:
    what it has asked a server for is not left half read."""
    task = asyncio.get_running_loop().create_task(work)
    _under_way.add(task)
    task.add_done_callback(_done)
    return await asyncio.shield(task)


def _done(task: "asyncio.Task[Any]") -> None:
    _under_way.discard(task)
    if not task.cancelled():
        task.exception()


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
