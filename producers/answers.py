"""Whether an answer fits its question, and the form in which the graph gets it.

Kinds of questions, as stored with them: `approve` (LangChain's HITLRequest, or the older
list of HumanInterrupt), `continue` (a static breakpoint), and anything else takes a JSON
value, checked against the question's response_schema when it has one.

An approval may be answered as `{"decisions": [...]}`, as the older list of HumanResponse,
in one word ("approved", "rejected"), or by a Verdict. All of them become the form that
belongs to the question, so that a graph sees one form only. Sources: HITLResponse in
langchain.agents.middleware, HumanResponse in langgraph.prebuilt.interrupt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from .errors import AnswerRefused

WORDS = {
    "approve": True,
    "approved": True,
    "accept": True,
    "accepted": True,
    "reject": False,
    "rejected": False,
}
_FROM_OLD = {"accept": "approve", "ignore": "reject", "response": "respond", "edit": "edit"}
_TO_OLD = {new: old for old, new in _FROM_OLD.items()}
_OLD_FLAGS = {
    "allow_accept": "approve",
    "allow_ignore": "reject",
    "allow_respond": "respond",
    "allow_edit": "edit",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes or no to the whole question, with an optional note for whoever reads it."""

    approve: bool
    note: str | None = None


@dataclass(frozen=True, slots=True)
class _Action:
    name: str
    allowed: tuple[str, ...]


def takes_text(kind: str, payload: Any) -> bool:
    """Whether a person's next words may be the answer (`session_message` has it in SQL)."""
    said = isinstance(payload, Mapping) and payload.get("text") is True
    return kind == "clarify" or said


def fitting(kind: str, payload: Any, response_schema: Any, value: Any) -> Any:
    """The answer in the question's own form; AnswerRefused(wrong_shape) when it has none."""
    if kind == "approve":
        return _approval(payload, value)
    if kind == "continue":
        return _go_on(value)
    if isinstance(value, Verdict):
        _refuse("The question asks for a value, not for an approval.", "Give it with `--value`.")
    _check_schema(value, response_schema)
    return value


def fitting_answer(thread: str, question: Mapping[str, Any], value: Any) -> Any:
    """As fitting; a refusal names the thread and its question."""
    try:
        return fitting(question["kind"], question["payload"], question["response_schema"], value)
    except AnswerRefused as refused:
        refused.data.update(thread_id=thread, question_id=question["question_id"])
        raise


def _go_on(value: Any) -> str:
    if isinstance(value, Verdict):
        value = "approve" if value.approve else "reject"
    if value is None or value is True or value == "continue" or WORDS.get(str(value)) is True:
        return "continue"
    _refuse(
        "The thread stands at a breakpoint, which only an approval passes.",
        'Answer "continue", or cancel the thread.',
    )


def _approval(payload: Any, value: Any) -> Any:
    actions = _actions(payload)
    old = _is_old(payload)
    decisions = _decisions(value, actions)
    if len(decisions) != len(actions):
        _refuse(
            f"The question asks about {len(actions)} action(s); "
            f"the answer decides on {len(decisions)}.",
            "Give one decision per action, in the same order.",
        )
    checked = [
        _check(decision, action) for decision, action in zip(decisions, actions, strict=True)
    ]
    return [_to_old(decision) for decision in checked] if old else {"decisions": checked}


def _decisions(value: Any, actions: Sequence[_Action]) -> list[Any]:
    """The answer as HITL decisions, whichever form it came in."""
    if isinstance(value, str) and value.strip().lower() in WORDS:
        value = Verdict(WORDS[value.strip().lower()])
    if isinstance(value, Verdict):
        decision: dict[str, Any] = {"type": "approve" if value.approve else "reject"}
        if value.note is not None:
            decision["message"] = value.note
        return [dict(decision) for _ in actions]
    if (
        isinstance(value, dict)
        and set(value) == {"decisions"}
        and isinstance(value["decisions"], list)
    ):
        return list(value["decisions"])
    if isinstance(value, list):
        return [_from_old(item) for item in value]
    _refuse(
        "The answer is no approval.",
        'Give {"decisions": [{"type": "approve"}]}, or "approved" or "rejected".',
    )


def _check(decision: Any, action: _Action) -> dict[str, Any]:
    if not isinstance(decision, dict) or not isinstance(decision.get("type"), str):
        _refuse("A decision has no type.", f"Its type is one of: {', '.join(action.allowed)}.")
    kind = decision["type"]
    if kind not in action.allowed:
        _refuse(
            f"'{kind}' is not allowed for {action.name or 'this action'}.",
            f"Allowed: {', '.join(action.allowed)}.",
        )
    message = decision.get("message")
    if not isinstance(message, str | None) or (kind == "respond" and message is None):
        _refuse(f"The message of '{kind}' is not text.", "Give it as a string.")
    if kind == "edit" and not _is_action(decision.get("edited_action")):
        _refuse(
            "An edit needs the edited action.",
            'Give {"type": "edit", "edited_action": {"name": …, "args": {…}}}.',
        )
    return decision


def _is_action(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("args"), dict)
    )


def _from_old(item: Any) -> Any:
    if not isinstance(item, dict) or str(item.get("type")) not in _FROM_OLD:
        _refuse(
            "A response in the list has no known type.",
            f"Its type is one of: {', '.join(_FROM_OLD)}.",
        )
    kind, args = _FROM_OLD[item["type"]], item.get("args")
    if kind == "edit" and isinstance(args, dict):
        return {
            "type": kind,
            "edited_action": {"name": args.get("action"), "args": args.get("args")},
        }
    if kind in ("reject", "respond") and args is not None:
        return {"type": kind, "message": args}
    return {"type": kind}


def _to_old(decision: dict[str, Any]) -> dict[str, Any]:
    kind = decision["type"]
    args: Any = decision.get("message")
    if kind == "edit":
        edited = decision["edited_action"]
        args = {"action": edited["name"], "args": edited["args"]}
    return {"type": _TO_OLD[kind], "args": args if kind != "approve" else None}


def _is_old(payload: Any) -> bool:
    return isinstance(payload, list) or (isinstance(payload, dict) and "action_request" in payload)


def _actions(payload: Any) -> list[_Action]:
    if _is_old(payload):
        items = payload if isinstance(payload, list) else [payload]
        return [_old_action(item) for item in items]
    if not isinstance(payload, dict) or not isinstance(payload.get("action_requests"), list):
        return [_Action("", ("approve", "reject"))]
    names = [_text(request, "name") for request in payload["action_requests"]]
    configs = payload.get("review_configs")
    allowed = {
        _text(config, "action_name"): tuple(map(str, config["allowed_decisions"]))
        for config in (configs if isinstance(configs, list) else ())
        if isinstance(config, dict) and isinstance(config.get("allowed_decisions"), list)
    }
    return [_Action(name, allowed.get(name) or ("approve", "edit", "reject")) for name in names]


def _old_action(item: Any) -> _Action:
    config = item.get("config") if isinstance(item, dict) else None
    flags = config if isinstance(config, dict) else {}
    allowed = tuple(new for flag, new in _OLD_FLAGS.items() if flags.get(flag))
    request = item.get("action_request") if isinstance(item, dict) else None
    return _Action(_text(request, "action"), allowed or tuple(_TO_OLD))


def _text(found: Any, name: str) -> str:
    return str(found.get(name, "")) if isinstance(found, dict) else ""


def _check_schema(value: Any, schema: Any) -> None:
    if not isinstance(schema, dict):
        return
    from .schemas import compiled, first_error

    if (error := first_error(compiled(schema), value)) is not None:
        path, reason = error
        _refuse(
            f"The answer does not fit the question: {path}{reason}.",
            "The question's response_schema says what it takes.",
        )


def _refuse(message: str, hint: str) -> NoReturn:
    raise AnswerRefused(message, hint, reason="wrong_shape")
