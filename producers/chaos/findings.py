"""What a check of a chaos run found: each fault has a kind in a closed set."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..payloads import shown

if TYPE_CHECKING:
    from rich.table import Table

Kind = Literal[
    # G1, G3: messages
    "lost",
    "unfinished",
    "duplicate_message",
    "unknown_message",
    # G4: effects
    "missing_effect",
    "duplicate_effect",
    "unexpected_effect",
    "unrecorded_effect",
    # G2: one writer
    "forked",
    "stale_write",
    # what became of each thread
    "wrong_status",
    "state_differs",
    "inconsistent",
    # G5
    "out_of_order",
    # what is left behind
    "left_lock",
    "idle_in_transaction",
    "queue_not_empty",
    "orphan_process",
]

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One fault. ``thread``: empty where it is of no thread."""

    kind: Kind
    thread: str
    detail: str


@dataclass(frozen=True)
class Report:
    """All faults of a run, and how much was looked at: ``{"messages": 12, ...}``."""

    findings: list[Finding]
    looked_at: Mapping[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.findings

    def kinds(self) -> set[str]:
        return {finding.kind for finding in self.findings}

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: ``{"ok", "looked_at", "findings": [{"kind", "thread", "detail"}]}``."""
        return {
            "ok": self.ok,
            "looked_at": dict(self.looked_at),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def write(self, path: Path) -> None:
        """As JSON, into a file."""
        path.write_text(json.dumps(self.as_dict(), indent=2) + "\n", encoding="utf-8")

    def table(self) -> "Table":
        """One line per kind, for rich: how many, and the first of them."""
        from rich.table import Table
        from rich.text import Text

        seen = ", ".join(f"{number} {name}" for name, number in self.looked_at.items())
        table = Table(title=f"Looked at {seen}", title_justify="left")
        for column in ("fault", "found", "first"):
            table.add_column(column, overflow="fold")
        counts = Counter(finding.kind for finding in self.findings)
        for kind in KINDS:
            first = next((f for f in self.findings if f.kind == kind), None)
            said = "" if first is None else f"{first.thread} {first.detail}".strip()
            table.add_row(Text(kind), Text(str(counts[kind])), Text(shown(said, 300)))
        return table

    def __str__(self) -> str:
        return "\n".join(f"{f.kind}: {f.thread} {f.detail}" for f in self.findings) or "no faults"
