"""Fleet: how a service hands work to the fleet, answers its questions and looks on.

    with Fleet() as fleet:
        receipt = fleet.submit("refund", "A1001", {"user_id": "u_42"}, message_id="order-A1001")
        status = fleet.wait(receipt.thread_id, timeout=30)

Accept first, then publish: when a call returns, the message is committed in Postgres,
whatever becomes of the broker. Sending the same message_id and payload again is safe
and gives the same receipt. Safe to share between threads, and across a fork.
"""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import psycopg

from . import queries
from .answers import fitting_answer
from .batches import Item, accept_all, argument, place_of, starts_of
from .corrections import Corrections
from .inputs import InputSchemas
from .looking import Looking
from .messages import (
    Answer,
    Input,
    Message,
    OnExisting,
    Resolve,
    Start,
    built,
    message_id_of,
    split_thread_id,
)
from .messages import thread_id as make_thread_id
from .names import check_message_id, check_tenant, check_text_name
from .operate import Operations
from .refusals import receipt_of, refuse_unknown_question, refuse_unnamed, unknown_thread
from .sessions import MAX_SESSIONS, Sessions, translated
from .status import Question, Receipt, waits
from .surroundings import addresses, answer_within, failpoint
from .wakes import Wakes


class Fleet(Looking, Operations, Corrections):
    """A door to the fleet.

    postgres_url, redis_url: without arguments the settings (FLEET_POSTGRES_URL,
    FLEET_REDIS_URL and, in the full package, .env, fleet.toml and what `fleet up` wrote).
    Without a broker's address nothing is published and the fleet's sweeper is notified.
    tenant: whose threads these are; with one, threads of others do not exist.
    timeout: seconds that Postgres has for an answer, then FleetUnavailable. Left out: that of
    FLEET_CLIENT_TIMEOUT, or 15 where the address is given.
    sessions: of Postgres, at most; a caller waits for one to become free.
    """

    def __init__(
        self,
        postgres_url: str | None = None,
        redis_url: str | None = None,
        tenant: str = "",
        *,
        timeout: float | None = None,
        sessions: int = MAX_SESSIONS,
    ) -> None:
        self.tenant = check_tenant(tenant)
        postgres, redis = addresses(postgres_url, redis_url)
        self._sessions = Sessions(postgres, answer_within(timeout, postgres_url), sessions)
        self._wakes = Wakes(redis) if redis else None
        self._schemas = InputSchemas()

    def submit(
        self,
        graph: str,
        key: str,
        input: Mapping[str, Any],
        *,
        message_id: str | None = None,
        on_existing: OnExisting = "use_existing",
        force: bool = False,
        priority: int = 0,
        context: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        connection: psycopg.Connection[Any] | None = None,
    ) -> Receipt:
        """Start the thread of `key`.

        force: with on_existing="restart", begin anew although an effect is in doubt or a
        node was done by hand, which the run anew may do once more; else that is refused.
        context, config: LangGraph's, for this run and, until others are given, for the later
        ones of the thread. They are stored with the thread, so they hold no secrets.
        connection: accept within its present transaction, to be committed or rolled back
        with it; the work starts after that commit. Let it be READ COMMITTED, the default: in
        another one a message of the same thread that was committed meanwhile raises
        FleetUnavailable, and the transaction has to be run again. Raises UnknownGraph, InvalidKey,
        InvalidPayload, InvalidInput, MessageConflict, ThreadExists, EffectInDoubt,
        FleetUnavailable, NotMigrated.
        """
        start = built(
            Start,
            tenant=self.tenant,
            graph=graph,
            key=key,
            input=input,
            message_id=message_id_of(message_id),
            on_existing=on_existing,
            force=force,
            priority=priority,
            context=context,
            config=config,
        )
        return self._accept(start) if connection is None else self._join(connection, start)

    def submit_many(self, items: Iterable[Item]) -> list[Receipt]:
        """Start many, in transactions of up to 500; receipts in the order of the items.

        When an item is refused nothing of the call is accepted, and the error's `index`
        says which. (Only when somebody else sends the same message_id or key during a call
        of more than 500 may items before it have been accepted: the hint then says so.)
        """
        starts = starts_of(items, self.tenant)
        found = accept_all(self._sessions, self._schemas, starts, notify=self._wakes is None)
        published = self._published(found)
        return [
            receipt_of(start, f).model_copy(update={"published": published and waits(f)})
            for start, f in zip(starts, found, strict=True)
        ]

    def send(
        self,
        thread_id: str,
        input: Mapping[str, Any],
        *,
        message_id: str | None = None,
        context: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """More input for a thread that exists, which may be a part of what a start needs.

        Raises UnknownThread, QuestionOpen and as submit.
        """
        return self._accept(
            built(
                Input,
                **self._names(thread_id),
                message_id=message_id_of(message_id),
                input=input,
                context=context,
                config=config,
            )
        )

    def answer(
        self,
        thread_id: str,
        question_id: str | Question | None,
        value: Any,
        *,
        message_id: str | None = None,
        answered_by: str | None = None,
    ) -> Receipt:
        """Answer a question; without its id, the only one that is open.

        question_id: or the Question as `status` shows it, which need not be looked up once more.
        value: what the question takes; an approval takes {"decisions": [...]}, "approved",
        "rejected" or a Verdict. Raises AnswerRefused with its reason, UnknownThread.
        """
        names = self._names(thread_id)
        thread = make_thread_id(**names)
        if isinstance(question_id, Question):
            named: Mapping[str, Any] = dict(question_id)
        else:
            named = self._named(thread, question_id, message_id)
        return self._accept(
            built(
                Answer,
                **names,
                message_id=message_id_of(message_id),
                question_id=named["question_id"],
                value=fitting_answer(thread, named, value),
                answered_by=answered_by,
            )
        )

    def _named(
        self, thread: str, question_id: str | None, message_id: str | None
    ) -> Mapping[str, Any]:
        """The question of this id, or that this message has answered, or the only one."""
        if question_id is not None:
            question_id = check_text_name(question_id, "question_id")
        if message_id is not None:
            message_id = check_message_id(message_id)
        asked = self._sessions.run(
            lambda conn: queries.row(
                conn, "asked", thread_id=thread, question_id=question_id, message_id=message_id
            ),
            reads=True,
        )
        if asked is None:
            raise unknown_thread(thread)
        named: Mapping[str, Any] | None = asked["named"]
        if named is None and question_id is None:
            refuse_unnamed(thread, asked)
        if named is None:
            refuse_unknown_question(thread, str(question_id), asked)
        return named

    def resolve(
        self,
        thread_id: str,
        request_id: str,
        happened: bool,
        result: Any = None,
        *,
        message_id: str | None = None,
    ) -> Receipt:
        """Settle an effect in doubt: it happened, with this result, or it did not."""
        return self._accept(
            built(
                Resolve,
                **self._names(thread_id),
                message_id=message_id_of(message_id),
                request_id=request_id,
                happened=happened,
                result=result,
            )
        )

    def close(self) -> None:
        self._sessions.close()
        if self._wakes is not None:
            self._wakes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self, message: Message) -> Receipt:
        found = self._sessions.run(
            lambda conn: self._accept_on(conn, message), message_id=message.message_id
        )
        failpoint("accept.after_commit", lambda: place_of(message))
        receipt = receipt_of(message, found)
        return receipt.model_copy(update={"published": self._published([found])})

    def _join(self, conn: psycopg.Connection[Any], start: Start) -> Receipt:
        """Accept within a transaction of the caller's."""
        with translated():
            self._schemas.check(conn, start)
            failpoint("accept.before_commit", lambda: place_of(start))
            found = queries.row(conn, "accept_within", message=argument(start, notify=True))
        return receipt_of(start, found)

    def _accept_on(self, conn: psycopg.Connection[Any], message: Message) -> Any:
        if isinstance(message, Start | Input):
            self._schemas.check(conn, message)
        failpoint("accept.before_commit", lambda: place_of(message))
        return queries.row(conn, "accept", message=argument(message, notify=self._wakes is None))

    def _published(self, found: list[dict[str, Any]]) -> bool:
        """Whether the broker took the wake-ups of those that wait for one."""
        return self._wakes is not None and self._wakes.publish([f for f in found if waits(f)])

    def _names(self, thread_id: str) -> dict[str, str]:
        tenant, graph, key = split_thread_id(thread_id)
        if self.tenant and tenant not in ("", self.tenant):
            raise unknown_thread(thread_id)
        return {"tenant": tenant or self.tenant, "graph": graph, "key": key}
