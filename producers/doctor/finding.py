"""What a check found: its level in a closed set, a sentence, and what to do."""

from dataclasses import dataclass, field
from typing import Any, Literal

#: note: could not be looked at, or worth knowing. warning: will hurt one day. problem: hurts.
Level = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One line of the report; `data` carries the facts behind it, for machines."""

    check: str
    level: Level
    said: str
    fix: str = ""
    data: dict[str, Any] = field(default_factory=dict)


def ok(check: str, said: str, **data: Any) -> Finding:
    return Finding(check, "ok", said, data=data)


def note(check: str, said: str, fix: str = "", **data: Any) -> Finding:
    return Finding(check, "note", said, fix, data)


def warning(check: str, said: str, fix: str, **data: Any) -> Finding:
    return Finding(check, "warning", said, fix, data)


def problem(check: str, said: str, fix: str, **data: Any) -> Finding:
    return Finding(check, "problem", said, fix, data)
