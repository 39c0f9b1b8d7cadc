"""What is to become of a question that nobody answers in time, as its graph declares it.

Beside ``expires_in`` (seconds) an interrupt's payload may have ``on_expiry``:

    {"answer": value}                              this is the answer then, by "expiry"
    "cancel"                                       the thread is cancelled
    {"notify": channel, "expires_in": seconds,     another channel is told and the question
     "then": …}                                    stays open for as long again; then, as above

Without it the thread fails. What is declared is read when the question is asked, so that a
mistake is in the log then, and not found when it is too late; the thread fails at its time.
"""

import logging
from collections.abc import Iterable
from typing import Any

from graphs.questions import Question, is_seconds
from producers.answers import fitting
from producers.errors import AnswerRefused

log = logging.getLogger("fleet.deadlines")

#: One channel after the other, and then?
_MOST_CHANNELS = 10


class Undeclared(ValueError):
    """The declaration can't be followed; the text says why."""


def rows(questions: Iterable[Question], thread_id: str = "") -> tuple[dict[str, Any], ...]:
    """The questions as ``fleet.ask`` takes them, with ``on_expiry`` in the form it keeps."""
    return tuple(
        question.row() | {"on_expiry": on_expiry(question, thread_id)} for question in questions
    )


def on_expiry(question: Question, thread_id: str = "") -> dict[str, Any] | None:
    """What ``fleet.expire_questions`` is to do; None: the thread fails, as by default."""
    if question.on_expiry is None:
        return None
    try:
        if question.expires_in is None:
            raise Undeclared("it has an on_expiry and no expires_in that is a number of seconds")
        return _declared(question, question.on_expiry, question.expires_in, 0)
    except Undeclared as exc:
        log.warning("question %s of %s: %s", question.question_id, thread_id, exc)
        return {"do": "fail", "reason": str(exc)}


def _declared(question: Question, said: Any, seconds: float, depth: int) -> dict[str, Any]:
    if said == "cancel":
        return {"do": "cancel"}
    if isinstance(said, dict) and said.keys() == {"answer"}:
        return {"do": "answer", "value": _answer(question, said["answer"])}
    if isinstance(said, dict) and "notify" in said and said.keys() <= _NOTIFY:
        return _elsewhere(question, said, seconds, depth)
    raise Undeclared(
        'its on_expiry is neither "cancel" nor {"answer": …} nor {"notify": channel, "then": …}'
    )


_NOTIFY = {"notify", "expires_in", "then"}


def _answer(question: Question, value: Any) -> Any:
    try:
        return fitting(question.kind, question.payload, question.response_schema, value)
    except AnswerRefused as refused:
        raise Undeclared(f"its default answer is none: {refused.message}") from None


def _elsewhere(
    question: Question, said: dict[str, Any], seconds: float, depth: int
) -> dict[str, Any]:
    channel, again = said["notify"], said.get("expires_in", seconds)
    if not isinstance(channel, str) or not channel.strip():
        raise Undeclared("its on_expiry names no channel to notify")
    if not is_seconds(again) or again == 0:
        raise Undeclared("the expires_in of its on_expiry is no number of seconds above 0")
    if depth >= _MOST_CHANNELS:
        raise Undeclared(f"its on_expiry names more than {_MOST_CHANNELS} channels")
    then = said.get("then")
    after = None if then is None else _declared(question, then, again, depth + 1)
    return {"do": "notify", "channel": channel, "seconds": again, "then": after}
