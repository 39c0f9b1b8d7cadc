"""Questions: what an interrupted graph asks, as doors and people see it.

Pure functions over a StateSnapshot. Kinds:

``approve``   the payload is a HITLRequest ``{"action_requests": [{name, args, description}],
              "review_configs": [{action_name, allowed_decisions}]}`` or its legacy list form;
              the answer is one decision per action
(a word)      the payload is an object whose ``kind`` is a plain word of its graph's own:
              ``clarify``, ``select_room``; small letters, digits and ``_``
``value``     any other payload; ``response_schema`` (JSON Schema), when the graph gave one
``continue``  a static breakpoint; only an answer that names this checkpoint passes it
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.types import Interrupt, StateSnapshot
from pydantic import TypeAdapter

from graphs.values import plain

#: A kind of ours, or a word of the graph's own.
Kind = str

#: Seconds: a hundred years.
_LONGEST = 100 * 365 * 86400

_WORD = re.compile(r"[a-z][a-z0-9_]{0,39}")
#: What these are is told by the payload's shape, never by a word in it.
OUR_KINDS = frozenset({"approve", "value", "continue"})

# Every word that a door takes for a decision (producers.answers) means the same here.
_APPROVED = frozenset({"approve", "approved", "accept", "accepted"})
_REJECTED = frozenset({"reject", "rejected", "ignore"})


@dataclass(frozen=True, slots=True)
class Question:
    """One open question. ``payload`` is JSON-plain; ``expires_in`` in seconds; ``on_expiry`` is
    what is to happen then, in the graph's own words (workers.deadlines knows them)."""

    question_id: str
    kind: Kind
    payload: Any
    response_schema: dict[str, Any] | None = None
    expires_in: float | None = None
    on_expiry: Any = None

    def row(self) -> dict[str, Any]:
        """As ``fleet.ask`` takes it."""
        return {name: getattr(self, name) for name in Question.__slots__}


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided, in whichever form the answer came."""

    approved: bool
    note: str | None = None


def questions_of(state: StateSnapshot) -> list[Question]:
    """Open questions in the order of their tasks: interrupts, else a static breakpoint."""
    asked: dict[str, Question] = {}
    for task in state.tasks:
        for interrupt in task.interrupts:
            asked.setdefault(interrupt.id, question_of(interrupt))
    if asked or not state.next:
        return [*asked.values()]
    checkpoint_id = (state.config or {}).get("configurable", {}).get("checkpoint_id")
    if checkpoint_id is None:
        return []
    return [Question(checkpoint_id, "continue", {"next": [*state.next]})]


def question_of(interrupt: Interrupt) -> Question:
    """What one open interrupt asks."""
    payload = plain(interrupt.value)
    expires_in = payload.get("expires_in") if isinstance(payload, dict) else None
    return Question(
        interrupt.id,
        "approve" if is_approval(payload) else _word(payload),
        payload,
        _schema(getattr(interrupt, "response_schema", None)),
        expires_in if is_seconds(expires_in) else None,
        payload.get("on_expiry") if isinstance(payload, dict) else None,
    )


def is_seconds(said: Any) -> bool:
    """Whether a question may stay open for so long: a number, and not beyond all calendars."""
    return isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said <= _LONGEST


def _word(payload: Any) -> Kind:
    """The kind that an object names itself, where it is a plain word."""
    kind = payload.get("kind") if isinstance(payload, Mapping) else None
    return str(kind) if is_kind(kind) and kind not in OUR_KINDS else "value"


def is_kind(kind: Any) -> bool:
    """Whether questions may be of a kind of this name."""
    return isinstance(kind, str) and _WORD.fullmatch(kind) is not None


def is_approval(payload: Any) -> bool:
    """Whether a payload is a HITLRequest, or HumanInterrupts as they were: a list or one."""
    if isinstance(payload, Mapping) and "action_request" in payload:
        payload = [payload]
    if isinstance(payload, Mapping):
        return _actions(payload.get("action_requests"), "name")
    if isinstance(payload, list) and payload:
        requests = [p.get("action_request") for p in payload if isinstance(p, Mapping)]
        return len(requests) == len(payload) and _actions(requests, "action")
    return False


def _actions(requests: Any, name: str) -> bool:
    return (
        isinstance(requests, list)
        and bool(requests)
        and all(isinstance(r, Mapping) and isinstance(r.get(name), str) for r in requests)
    )


def _schema(declared: Any) -> dict[str, Any] | None:
    if declared is None:
        return None
    if isinstance(declared, Mapping):
        schema: dict[str, Any] = plain(declared)
        return schema
    try:
        return TypeAdapter(declared).json_schema()
    except Exception:
        # A type that has no JSON Schema checks nothing at the door; the node still can.
        return None


def normalise_decision(answer: Any) -> Decision:
    """One decision from any form that doors accept. Raises ValueError for others.

    ``{"decisions": [{"type": "approve"}]}`` (all must approve), the legacy list
    ``[{"type": "accept"}]``, or plain ``"approved"`` / ``"rejected"``. An edit or a response
    is no approval of what was asked.
    """
    if isinstance(answer, str):
        return Decision(_verdict(answer, answer))
    if isinstance(answer, Mapping):
        answer = answer.get("decisions", [answer] if "type" in answer else None)
    if not isinstance(answer, list) or not answer:
        raise ValueError(f"{answer!r} is no decision: answer with approve or reject")
    verdicts: list[bool] = []
    notes: list[str] = []
    for decision in answer:
        if not isinstance(decision, Mapping) or not isinstance(decision.get("type"), str):
            raise ValueError(f"{decision!r} is no decision: it has no type")
        verdicts.append(_verdict(decision["type"], decision))
        note = decision.get("message", decision.get("args"))
        if isinstance(note, str) and note.strip():
            notes.append(note.strip())
    return Decision(all(verdicts), "; ".join(notes) or None)


def _verdict(word: str, said: Any) -> bool:
    if word.strip().lower() in _APPROVED:
        return True
    if word.strip().lower() in _REJECTED | {"response", "respond", "edit"}:
        return False
    raise ValueError(f"{said!r} is no decision: answer with approve or reject")
