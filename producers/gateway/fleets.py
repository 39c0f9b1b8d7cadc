"""The fleet as each tenant sees it."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import anyio.to_thread

from infra.settings import Settings

from ..client import Fleet

T = TypeVar("T")

#: Each waits for the other producers of one thread at most.
_SESSIONS = 8


class Fleets:
    """One Fleet per tenant over the same few sessions. A Fleet is the sync client: `call` runs
    its methods off the event loop."""

    def __init__(self, settings: Settings) -> None:
        self._fleet = Fleet(
            settings.require_postgres(),
            settings.redis_url,
            timeout=settings.client_timeout,
            sessions=_SESSIONS,
        )

    def of(self, tenant: str) -> Fleet:
        """The tenant's. The default tenant's, "", lists threads of all unless told not to."""
        view = copy.copy(self._fleet)
        view.tenant = tenant
        return view

    async def call(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """`await fleets.call(fleet.status, thread_id)`."""
        return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs))

    def close(self) -> None:
        self._fleet.close()
