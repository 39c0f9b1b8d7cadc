"""What fleet.accept answered, as a receipt or as the error that says why not."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from .errors import (
    AnswerRefused,
    EffectInDoubt,
    MessageConflict,
    NotInDoubt,
    ProducerError,
    QuestionOpen,
    ThreadExists,
    UnknownGraph,
    UnknownThread,
)
from .messages import Message
from .operated import Repeated
from .status import Receipt, held


def receipt_of(message: Message, found: dict[str, Any]) -> Receipt:
    """The receipt; raises the ProducerError of a refused message."""
    if found["outcome"] in ("accepted", "duplicate", "existing"):
        return Receipt.model_validate({**found, "paused": held(found.get("queue"))})
    raise refusal(message, found)


def refusal(message: Message, found: dict[str, Any]) -> ProducerError:
    """The error for an outcome that accepted nothing."""
    outcome = found["outcome"]
    if outcome in _ANSWERS:
        return answer_refusal(message.thread_id, getattr(message, "question_id", None), found)
    build = _OTHERS.get(outcome)
    if build is None:
        return ProducerError(
            f"The fleet refused the message to {message.thread_id}: {outcome}.",
            "This client may be older than the fleet; update it.",
        )
    return build(message, found)


def _conflict(message: Message, found: dict[str, Any]) -> ProducerError:
    thread, name = message.thread_id, message.message_id
    return MessageConflict(
        f"{thread} has a message '{name}' with another payload.", thread_id=thread, message_id=name
    )


def _unknown_graph(message: Message, found: dict[str, Any]) -> ProducerError:
    return unknown_graph(message.graph, found.get("known") or [])


def _exists(message: Message, found: dict[str, Any]) -> ProducerError:
    thread, status = message.thread_id, found.get("status")
    return ThreadExists(f"{thread} exists already ({status}).", thread_id=thread, status=status)


def _unknown_thread(message: Message, found: dict[str, Any]) -> ProducerError:
    return unknown_thread(message.thread_id)


def _question_open(message: Message, found: dict[str, Any]) -> ProducerError:
    thread, asked = message.thread_id, found.get("open") or []
    return QuestionOpen(
        f"{thread} waits for the answer to {', '.join(asked)}.", thread_id=thread, open=asked
    )


def _not_in_doubt(message: Message, found: dict[str, Any]) -> ProducerError:
    thread, request = message.thread_id, getattr(message, "request_id", None)
    return NotInDoubt(
        f"{thread} has no effect in doubt with request_id {request}.",
        thread_id=thread,
        request_id=request,
    )


def _in_doubt(message: Message, found: dict[str, Any]) -> ProducerError:
    thread, repeated = message.thread_id, Repeated.model_validate(found)
    settled = f", then `fleet resolve {thread} …`" if found.get("status") == "in_doubt" else ""
    return EffectInDoubt(
        f"{thread} is not started anew: {repeated}.",
        f"Look it up outside first{settled}; `--yes` (Python: force=True) starts it anew all the "
        "same.",
        thread_id=thread,
        in_doubt=[e.request_id for e in repeated.in_doubt],
        amended=repeated.amended,
    )


_OTHERS: dict[str, Callable[[Message, dict[str, Any]], ProducerError]] = {
    "conflict": _conflict,
    "unknown_graph": _unknown_graph,
    "rejected": _exists,
    "unknown_thread": _unknown_thread,
    "question_open": _question_open,
    "not_in_doubt": _not_in_doubt,
    "in_doubt": _in_doubt,
}
_ANSWERS = ("no_question", "stale_question", "already_answered", "finished", "expired")


def unknown_graph(graph: str, known: list[str]) -> UnknownGraph:
    return UnknownGraph(
        f"No graph '{graph}' is registered.",
        f"Known: {', '.join(known)}." if known else "Run `fleet migrate` to register graphs.",
        graph=graph,
        known=known,
    )


def unknown_thread(thread: str) -> UnknownThread:
    return UnknownThread(f"There is no thread {thread}.", thread_id=thread)


def answer_refusal(thread: str, question: str | None, found: dict[str, Any]) -> AnswerRefused:
    """The refusal of an answer that met no question it could be the answer to."""
    reason = found["outcome"]
    asked = found.get("open") or []
    named = f"Question {question}" if question else "The question"
    by = f" by {found['answered_by']}" if found.get("answered_by") else ""
    status = found.get("status")
    texts = {
        "no_question": (f"{thread} asks nothing now.", "Look at it with `fleet show`."),
        "stale_question": (
            f"{named} of {thread} is not open any more.",
            f"Open now: {', '.join(asked)}." if asked else "Look at it with `fleet show`.",
        ),
        "already_answered": (
            f"{named} of {thread} was answered{by} at {_moment(found.get('answered_at'))}.",
            "The first answer counts.",
        ),
        "finished": (f"{thread} has ended ({status}) and asks nothing any more.", ""),
        "expired": (
            f"{named} of {thread} expired at {_moment(found.get('expired_at'))}.",
            "Look at what became of it with `fleet show`.",
        ),
    }
    message, hint = texts[reason]
    data = {
        name: found[name]
        for name in ("open", "answered_by", "answered_at", "expired_at", "status")
        if found.get(name)
    }
    return AnswerRefused(
        message, hint, reason=reason, thread_id=thread, question_id=question, **data
    )


def _moment(found: Any) -> str:
    """A time of the database's as the command line shows times."""
    try:
        return datetime.fromisoformat(found).astimezone().isoformat(sep=" ", timespec="seconds")
    except (TypeError, ValueError):
        return str(found)


def refuse_unnamed(thread: str, asked: dict[str, Any]) -> NoReturn:
    """No question was named and there is not exactly one that could be meant."""
    if len(asked["open"]) > 1:
        raise AnswerRefused(
            f"{thread} has {len(asked['open'])} open questions.",
            f"Name the one that you answer: {', '.join(asked['open'])}.",
            reason="no_question",
            thread_id=thread,
            open=asked["open"],
        )
    latest = asked["latest"] or {}
    if asked["status"] in ("done", "cancelled", "failed"):
        outcome = "finished"
    else:
        outcome = {"answered": "already_answered", "expired": "expired"}.get(
            str(latest.get("status")), "no_question"
        )
    raise answer_refusal(thread, None, {**latest, "status": asked["status"], "outcome": outcome})


def refuse_unknown_question(thread: str, question: str, asked: dict[str, Any]) -> NoReturn:
    """The named question was never asked on this thread."""
    if asked["status"] in ("done", "cancelled", "failed"):
        outcome = "finished"
    else:
        outcome = "stale_question" if asked["open"] else "no_question"
    found = {"outcome": outcome, "open": asked["open"], "status": asked["status"]}
    refused = answer_refusal(thread, question, found)
    refused.data["asked"] = False
    raise refused
