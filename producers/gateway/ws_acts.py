"""What a chat page does with its thread: it says something, answers, calls off.

What comes twice under one message_id is done once, and told the same: what was made of it the
first time is looked up before anything is made of it anew.
"""

from typing import Any

from ..client import Fleet
from ..errors import ProducerError, QuestionOpen, ThreadExists, UnknownThread
from ..names import check_message_id
from .auth import Principal, Role
from .database import Database
from .fleets import Fleets
from .session_book import Session
from .ws_messages import Cancel, Refused, Reply, Say

#: Codes after which the same frame may be taken.
_AGAIN = {"fleet_unavailable": "unavailable", "outcome_unknown": "outcome_unknown"}


class Acts:
    """Of one session. Each gives the frame that acknowledges it. Raises Refused."""

    def __init__(self, fleets: Fleets, database: Database, session: Session) -> None:
        self._fleets = fleets
        self._database = database
        self._session = session
        self._thread = session.thread_id
        self._fleet: Fleet = fleets.of(session.tenant)

    async def say(self, frame: Say, principal: Principal, asked: set[str]) -> dict[str, Any]:
        """asked: the questions that the page has been shown; one that takes text is answered."""
        try:
            check_message_id(frame.message_id)
            found = await self._database.row(
                "session_message",
                reads=True,
                thread_id=self._thread,
                message_id=frame.message_id,
            )
            assert found is not None
            standing = found["standing"]
            said = standing["said"]
            question = _answered(said) if said else self._meant(standing["questions"], asked)
            role = Role.producer if question is None else Role.approver
            self._require(principal, role, frame.message_id)
            if said and said["payload"] is None:  # removed by retention: it has had its turn
                return _ack(frame.message_id, said["kind"], "duplicate")
            if question is not None:
                return await self._answer(question, frame.content, frame.message_id, principal)
            start = said["kind"].startswith("start") if said else not standing["known"]
            return await self._next(frame, start=start)
        except ProducerError as exc:
            raise refused(exc, message_id=frame.message_id) from exc

    async def reply(self, frame: Reply, principal: Principal) -> dict[str, Any]:
        """An answer to the question that it names."""
        self._require(principal, Role.approver, frame.message_id)
        try:
            return await self._answer(frame.question_id, frame.value, frame.message_id, principal)
        except ProducerError as exc:
            raise refused(exc, message_id=frame.message_id) from exc

    async def cancel(self, frame: Cancel, principal: Principal) -> dict[str, Any]:
        """Call off what is under way."""
        self._require(principal, Role.producer)
        try:
            done = await self._fleets.call(self._fleet.cancel, self._thread)
        except UnknownThread:
            return {"type": "cancelled", "outcome": "finished"}
        except ProducerError as exc:
            raise refused(exc) from exc
        return {"type": "cancelled", "outcome": done.outcome}

    def _require(self, principal: Principal, role: Role, message_id: str | None = None) -> None:
        if not (self._session.owned_by(principal) or principal.may(role)):
            named: dict[str, Any] = {"message_id": message_id} if message_id is not None else {}
            may_not = f"{principal.name} may not do this: the role is {role}."
            raise Refused("forbidden", may_not, **named)

    def _meant(self, questions: list[dict[str, Any]], asked: set[str]) -> str | None:
        """The question that a plain message answers. Raises QuestionOpen."""
        if not questions:
            return None
        takes_text = [q["question_id"] for q in questions if q["text"]]
        if len(takes_text) == 1 and takes_text[0] in asked:
            return str(takes_text[0])
        named = [q["question_id"] for q in questions]
        raise QuestionOpen(
            "A question is open that a plain message does not answer."
            if len(takes_text) != 1
            else "A question has just been asked that this page has not been shown.",
            "Answer it by its question_id, or cancel.",
            open=named,
        )

    async def _answer(
        self, question: str, value: Any, message_id: str, principal: Principal
    ) -> dict[str, Any]:
        receipt = await self._fleets.call(
            self._fleet.answer,
            self._thread,
            question,
            value,
            message_id=message_id,
            answered_by=principal.user or principal.name,
        )
        return {**_ack(message_id, "answer", receipt.outcome), "question_id": question}

    async def _next(self, frame: Say, *, start: bool) -> dict[str, Any]:
        """The next message of the chat, or its first one."""
        name = frame.message_id
        said = {"messages": [{"role": "user", "content": frame.content, "id": name}]}
        if start:
            graph, key = self._session.graph, self._thread.partition(":")[2]
            try:
                receipt = await self._fleets.call(
                    self._fleet.submit, graph, key, said, message_id=name, on_existing="reject"
                )
                return _ack(name, "start", receipt.outcome)
            except ThreadExists:
                pass  # another page of this session was first
        receipt = await self._fleets.call(self._fleet.send, self._thread, said, message_id=name)
        return _ack(name, "input", receipt.outcome)


def refused(exc: ProducerError, **more: Any) -> Refused:
    """What the page is told of an error of the producers' tree."""
    data = {k: v for k, v in exc.data.items() if k in ("reason", "question_id", "open", "path")}
    code = _AGAIN.get(exc.code, exc.code)
    message = f"{exc.message} {exc.hint}".rstrip()
    return Refused(code, message, retry=exc.code in _AGAIN, **data, **more)


def _answered(said: dict[str, Any]) -> str | None:
    """The question that a message was the answer to."""
    if not said["kind"].startswith("answer") or not said["payload"]:
        return None
    return str(said["payload"]["question_id"])


def _ack(message_id: str, kind: str, outcome: str) -> dict[str, Any]:
    return {
        "type": "ack",
        "message_id": message_id,
        "as": kind.partition("@")[0],
        "duplicate": outcome == "duplicate",
    }
