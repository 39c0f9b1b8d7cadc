"""What can be seen of threads, and waiting for one.

:class:`Looking` is the part of :class:`Fleet` that only reads.
"""

import random
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from . import queries
from .errors import WaitTimeout
from .names import check_graph, check_text_name, split_thread_id
from .names import thread_id as make_thread_id
from .refusals import unknown_thread
from .status import SETTLED, NotificationRow, ThreadRow, ThreadStatus, thread_status

if TYPE_CHECKING:
    from .sessions import Sessions

# Seconds between looks at a thread that is waited for.
_FIRST_LOOK, _LAST_LOOK = 0.02, 0.25
#: Where more can be said than that it goes on.
_LATE_HINTS = {
    "idle": "It goes on when a worker takes it; `fleet ready` says whether one can.",
}


class Looking:
    """Mixed into Fleet."""

    tenant: str
    _sessions: "Sessions"

    if TYPE_CHECKING:

        def _names(self, thread_id: str) -> dict[str, str]: ...

    def status(self, thread_id: str) -> ThreadStatus:
        """All that is recorded of a thread. Raises UnknownThread."""
        return thread_status(self._look("status", thread_id))

    def threads(
        self,
        status: str | None = None,
        graph: str | None = None,
        limit: int = 100,
        *,
        tenant: str | None = None,
    ) -> list[ThreadRow]:
        """The threads changed last, newest first; of this tenant, or of all without one.

        tenant: of that one only, "" being the default one; a Fleet with a tenant has no other.

        Raises InvalidKey for a graph or status that can't be a name.
        """
        graph = graph if graph is None else check_graph(graph)
        status = status if status is None else check_text_name(status, "status")
        found = self._listed(
            "threads", status=status, graph=graph, tenant=self.tenant or tenant, limit=limit
        )
        return [ThreadRow.model_validate(row) for row in found]

    def questions(self, thread_id: str, status: str | None = None) -> list[dict[str, Any]]:
        """What the thread has asked, oldest first: ``{"question_id", "kind", "status",
        "payload", "response_schema", "asked_at", "expires_at", "answer", "answered_by",
        "answered_at"}``. status: only those that are so. Raises UnknownThread.
        """
        thread = make_thread_id(**self._names(thread_id))
        self._look("settled", thread)
        return self._listed("questions", thread_id=thread, status=status)

    def notifications(
        self, status: str | None = None, channel: str | None = None, limit: int = 100
    ) -> list[NotificationRow]:
        """Questions that were sent out because nobody looked at them, the latest first; of this
        tenant, or of all without one. Raises InvalidKey for a name that can't be one."""
        status = status if status is None else check_text_name(status, "status")
        channel = channel if channel is None else check_text_name(channel, "channel")
        found = self._listed(
            "notifications",
            status=status,
            channel=channel,
            tenant=self.tenant or None,
            limit=limit,
        )
        return [NotificationRow.model_validate(row) for row in found]

    def wait(
        self, thread_id: str, timeout: float, until: Collection[str] = SETTLED
    ) -> ThreadStatus:
        """The thread's status once it is one of `until` and no mail is being worked on.

        timeout: seconds; then WaitTimeout (a TimeoutError) with the status it was in.
        """
        deadline = time.monotonic() + timeout
        pause = _FIRST_LOOK
        while True:
            seen = self._look("settled", thread_id)
            if seen["status"] in until and not (seen["busy"] and seen["status"] in SETTLED):
                return self.status(thread_id)
            left = deadline - time.monotonic()
            if not left > 0:  # so that NaN is no wait without an end
                raise WaitTimeout(
                    f"{thread_id} is {seen['status']} after {timeout:g} s.",
                    _held_hint(thread_id) if seen["held"] else _LATE_HINTS.get(seen["status"]),
                    thread_id=thread_id,
                    status=seen["status"],
                    timeout=timeout,
                )
            # Spread out: many may wait for what one worker finishes.
            time.sleep(min(pause * random.uniform(0.8, 1.0), left))
            pause = min(pause * 1.5, _LAST_LOOK)

    def _look(self, query: str, thread_id: str) -> Any:
        thread = make_thread_id(**self._names(thread_id))
        found = self._sessions.run(
            lambda conn: queries.row(conn, query, thread_id=thread), reads=True
        )
        if found is None:
            raise unknown_thread(thread)
        return found

    def _listed(self, query: str, **args: Any) -> list[dict[str, Any]]:
        return self._sessions.run(lambda conn: [*queries.rows(conn, query, **args)], reads=True)


def _held_hint(thread: str) -> str:
    graph = split_thread_id(thread)[1]
    return f"Graph {graph} is paused; it goes on with `fleet resume {graph}`."
