"""A run's `resume`: answers to interrupts, accepted together or not at all.

AG-UI's rules: every open question is addressed, by its id; the same answer may come again; an
approval may be answered as ``{"approved": true, "editedArgs": {…}}``.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from ag_ui.core import ResumeEntry

from ..answers import Verdict, fitting_answer
from ..client import Fleet
from ..errors import AnswerRefused, InvalidPayload, QuestionOpen
from ..names import MAX_NAME
from ..refusals import refuse_unknown_question
from .database import Database


class Answers:
    """Those of one caller, named `by`, to one tenant's threads. Blocks: called from a thread."""

    def __init__(self, fleet: Fleet, database: Database, by: str) -> None:
        self._fleet = fleet
        self._database = database
        self._by = by

    def accept(self, thread: str, run_id: str, entries: Sequence[ResumeEntry]) -> dict[str, bool]:
        """{message_id: whether it was accepted now} of the answers; {} where the entries cancel.

        Raises AnswerRefused, QuestionOpen, InvalidPayload, UnknownThread: nothing was accepted.
        """
        status = self._fleet.status(thread)
        known = {e.interrupt_id: self._standing(thread, e.interrupt_id) for e in entries}
        open_now = [q.question_id for q in status.questions]
        for name, found in known.items():
            if found is None:
                asked = {"open": open_now, "status": status.status}
                refuse_unknown_question(thread, name, asked)
        answers = {
            e.interrupt_id: given
            for e in entries
            if (given := _value(known[e.interrupt_id], e)) is not _CANCELLED
        }
        said = {name: self._said_before(known[name], value) for name, value in answers.items()}
        fresh = [name for name in answers if said[name] is None]
        cancelled = [n for n, found in known.items() if n not in answers and _is_open(found)]
        # What comes too late is refused before anything is accepted.
        late = {name: answers[name] for name in fresh if not _is_open(known[name])}
        receipts = {message_id: False for message_id in said.values() if message_id}
        receipts |= self._give(thread, run_id, late)
        self._require_all(thread, open_now, [*answers, *cancelled] if fresh or cancelled else None)
        if cancelled and answers:
            raise InvalidPayload(
                f"resume answers {', '.join(answers)} and cancels {', '.join(cancelled)}.",
                "A question that is no approval is cancelled with its thread: answer it, give "
                "its cancellation a payload that the graph understands, or cancel all.",
            )
        if cancelled:
            self._fleet.cancel(thread)
            return {}
        new = {name: answers[name] for name in fresh if name not in late}
        for name, value in new.items():
            fitting_answer(thread, known[name], value)
        return receipts | self._give(thread, run_id, new)

    def _give(self, thread: str, run_id: str, answers: Mapping[str, Any]) -> dict[str, bool]:
        receipts = {}
        for name, value in answers.items():
            receipt = self._fleet.answer(
                thread, name, value, message_id=_message_id(run_id, name), answered_by=self._by
            )
            receipts[receipt.message_id] = receipt.outcome == "accepted"
        return receipts

    def _standing(self, thread: str, question_id: str) -> Any:
        rows = self._database.rows_now(
            "question_standing", reads=True, thread_id=thread, question_id=question_id
        )
        return {**rows[0], "question_id": question_id} if rows else None

    def _said_before(self, found: Mapping[str, Any], value: Any) -> str | None:
        """The message that gave the same answer already; None where there is none."""
        if found["status"] != "answered":
            return None
        try:
            same = fitting_answer("", found, value) == found["answer"]
        except AnswerRefused:
            return None
        return str(found["answer_message_id"]) if same else None

    def _require_all(
        self, thread: str, open_now: Sequence[str], addressed: Sequence[str] | None
    ) -> None:
        """Refuse what leaves a question open; None: nothing new is said."""
        rest = [name for name in open_now if addressed is not None and name not in addressed]
        if rest:
            raise QuestionOpen(
                f"{thread} waits for the answer to {', '.join(rest)} too.",
                "Answer all that is open in one resume; `POST /agent/resume` answers one alone.",
                thread_id=thread,
                open=rest,
            )


_CANCELLED = object()


def _is_open(found: Mapping[str, Any]) -> bool:
    return bool(found["status"] == "open")


def _value(found: Mapping[str, Any], entry: ResumeEntry) -> Any:
    """The answer in the fleet's words, or _CANCELLED."""
    approval = found["kind"] == "approve"
    if entry.status == "cancelled" and entry.payload is None:
        return Verdict(False) if approval and _is_open(found) else _CANCELLED
    payload = entry.payload
    if found["kind"] not in ("approve", "continue") or not isinstance(payload, Mapping):
        return payload
    if not isinstance(payload.get("approved"), bool):
        return payload
    edited, action = payload.get("editedArgs"), only_action(found["payload"])
    if payload["approved"] and isinstance(edited, Mapping) and action is not None:
        edit = {"type": "edit", "edited_action": {"name": action["name"], "args": dict(edited)}}
        return {"decisions": [edit]}
    note = payload.get("message", payload.get("reason"))
    return Verdict(payload["approved"], note if isinstance(note, str) else None)


def only_action(payload: Any) -> Mapping[str, Any] | None:
    """The action that an approval asks about, where it is one and has a name."""
    asked = payload.get("action_requests") if isinstance(payload, Mapping) else None
    if not isinstance(asked, list) or len(asked) != 1 or not isinstance(asked[0], Mapping):
        return None
    found: Mapping[str, Any] = asked[0]
    return found if isinstance(found.get("name"), str) else None


def may_edit(payload: Any) -> bool:
    """Whether the arguments of the only action may be replaced."""
    action = only_action(payload)
    configs = payload.get("review_configs") if action is not None else None
    return action is not None and any(
        isinstance(config, Mapping)
        and config.get("action_name") == action["name"]
        and "edit" in (config.get("allowed_decisions") or ())
        for config in (configs if isinstance(configs, list) else ())
    )


def _message_id(run_id: str, question_id: str) -> str:
    """The same for a run that is sent again."""
    made = f"{run_id}:{question_id}"
    return made if len(made) <= MAX_NAME else hashlib.sha256(made.encode()).hexdigest()
