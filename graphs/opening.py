"""Context managers that make a graph: what they open is kept open while the graph is used.

An async one is entered and left by one task, which waits in between: what it opened may
belong to that task (the task groups of anyio do, which MCP's sessions are made of).
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

#: Runs a coroutine to its result, always on the same event loop.
Await: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]
#: Leaves what was entered.
Leave: TypeAlias = Callable[[], None]

#: Seconds for an async context to be left; then it is cancelled.
_PATIENCE = 10.0


def nothing() -> None:
    """Nothing was entered."""


def is_context(found: Any) -> bool:
    """Whether it is a context manager, sync or async."""
    return hasattr(type(found), "__aenter__") or hasattr(type(found), "__enter__")


def entered(found: Any, wait_for: Await) -> tuple[Any, Leave]:
    """What a context manager gives, and what leaves it; anything else is given back."""
    if hasattr(type(found), "__aenter__"):
        held = _Held(found)
        return wait_for(held.enter()), lambda: wait_for(held.leave())
    if hasattr(type(found), "__enter__"):
        made = found.__enter__()
        return made, lambda: _exit(found)
    return found, nothing


@contextlib.contextmanager
def own_loop() -> Iterator[Await]:
    """An event loop in a thread of its own, for callers that may be in one already."""
    with ThreadPoolExecutor(1) as pool:
        runner = asyncio.Runner()
        try:
            yield lambda work: pool.submit(runner.run, work).result()
        finally:
            pool.submit(runner.close).result()


def _exit(manager: Any) -> None:
    manager.__exit__(None, None, None)


class _Held:
    """An async context manager in the hands of one task."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._leave = asyncio.Event()

    async def enter(self) -> Any:
        made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(made))
        await asyncio.wait([made, self._task], return_when=asyncio.FIRST_COMPLETED)
        # It has ended already where the context could not be entered.
        return made.result() if made.done() else await self._task

    async def _hold(self, made: "asyncio.Future[Any]") -> None:
        async with self._manager as found:
            made.set_result(found)
            await self._leave.wait()

    async def leave(self) -> None:
        self._leave.set()
        async with asyncio.timeout(_PATIENCE):
            await self._task
