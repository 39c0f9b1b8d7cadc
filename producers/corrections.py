"""What a person puts right in a thread: amend its state, or fork it from an earlier one.

:class:`Corrections` is the part of :class:`Fleet` that does it. An amendment is mail, so
that the thread's one writer applies it; a fork writes a thread that did not exist before.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import queries
from .batches import argument
from .errors import NothingToDo, ThreadExists, UnknownCheckpoint
from .messages import Amend, Start, built, checkpoint_thread_id, message_id_of, run_id
from .messages import thread_id as make_thread_id
from .names import check_text_name
from .refusals import receipt_of

if TYPE_CHECKING:
    from .messages import Message
    from .sessions import Sessions
    from .status import Receipt, ThreadStatus


class Corrections:
    """Mixed into Fleet."""

    tenant: str
    _sessions: "Sessions"
    _wakes: Any

    if TYPE_CHECKING:

        def status(self, thread_id: str) -> ThreadStatus: ...

        def _names(self, thread_id: str) -> dict[str, str]: ...

        def _accept(self, message: Message) -> Receipt: ...

        def _published(self, found: list[dict[str, Any]]) -> bool: ...

    def amend(
        self,
        thread_id: str,
        as_node: str,
        values: Mapping[str, Any],
        *,
        by: str | None = None,
        message_id: str | None = None,
    ) -> "Receipt":
        """Say that the node's work was done by hand, with these values for the state.

        A worker applies it: before a dead message, which goes on from it when it is retried,
        and at once to a thread that is `incompatible` or waits. Where it can't be applied its
        message ends as `dropped` with the reason. Raises UnknownThread, NothingToDo (a
        cancelled thread), InvalidPayload, MessageConflict.
        """
        amendment = built(
            Amend,
            **self._names(thread_id),
            message_id=message_id_of(message_id),
            as_node=as_node,
            values=values,
            by=by,
        )
        status = self.status(thread_id).status
        if status == "cancelled":
            raise NothingToDo(
                f"{thread_id} is cancelled, and nothing of it will run.",
                "Start it anew with `fleet restart`.",
                thread_id=thread_id,
                status=status,
            )
        return self._accept(amendment)

    def fork(
        self, thread_id: str, checkpoint_id: str, key: str, *, message_id: str | None = None
    ) -> "Receipt":
        """A new thread of the same graph that goes on from a checkpoint of this one.

        Effects after that point happen anew there, but for keyed ones. Raises UnknownThread,
        UnknownCheckpoint, ThreadExists, InvalidKey, MessageConflict.
        """
        checkpoint_id = check_text_name(checkpoint_id, "checkpoint_id")
        source = self.status(thread_id)
        begins = built(
            Start,
            tenant=source.tenant,
            graph=source.graph,
            key=key,
            message_id=message_id_of(message_id),
            input={"forked_from": {"thread_id": source.thread_id, "checkpoint_id": checkpoint_id}},
            on_existing="reject",
        )
        found = self._sessions.run(
            lambda conn: queries.row(
                conn,
                "fork",
                message=argument(begins, notify=self._wakes is None),
                source=source.thread_id,
                checkpoints=checkpoint_thread_id(source.thread_id, source.generation),
                checkpoint_id=checkpoint_id,
                run_id=run_id(begins.message_id, begins.thread_id),
            ),
            message_id=begins.message_id,
        )
        _refuse_fork(found, source.thread_id, checkpoint_id, begins.thread_id)
        receipt = receipt_of(begins, found)
        return receipt.model_copy(update={"published": self._published([found])})

    def effects_after(self, thread_id: str, checkpoint_id: str) -> list[dict[str, str]]:
        """``{"name", "request_id", "state"}`` of the effects that a fork there makes anew, but
        for keyed ones."""
        thread = make_thread_id(**self._names(thread_id))
        checkpoint_id = check_text_name(checkpoint_id, "checkpoint_id")
        return list(
            self._sessions.run(
                lambda conn: queries.rows(
                    conn, "effects_after", thread_id=thread, checkpoint_id=checkpoint_id
                ),
                reads=True,
            )
        )


def _refuse_fork(found: Mapping[str, Any], source: str, checkpoint_id: str, thread: str) -> None:
    if found["outcome"] == "unknown_checkpoint":
        raise UnknownCheckpoint(
            f"{source} has no checkpoint {checkpoint_id}.",
            thread_id=source,
            checkpoint_id=checkpoint_id,
        )
    if found["outcome"] == "rejected":
        raise ThreadExists(
            f"{thread} exists already ({found['status']}).",
            "Give a key that is not in use.",
            thread_id=thread,
            status=found["status"],
        )
