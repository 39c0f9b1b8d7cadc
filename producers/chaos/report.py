"""The report of a chaos run: one object for machines, a table for people."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .kills import Kill
from .verdict import Fault, Verdict

_VERDICTS = {
    "repeats": "repeats a side effect",
    "loses_answer": "loses an answer",
    "differs": "ends in another state",
    "never_ends": "never ends",
}


@dataclass(frozen=True, slots=True)
class AttackReport:
    """runs: ``{"run", "key", "kill": {"point", "place", "kept", "words"}, "hit", "status",
    "error", "timeline"}``. left_out: places that were not died at."""

    graph: str
    inputs: int
    verdict: Verdict
    runs: Sequence[dict[str, Any]]
    left_out: int
    seconds: float

    @property
    def missed(self) -> int:
        """Runs that did not come to the place at which they were to die."""
        return sum(not run["hit"] for run in self.runs)

    def as_dict(self) -> dict[str, Any]:
        """What --json prints."""
        return {
            "graph": self.graph,
            "safe": self.verdict.safe,
            "inputs": self.inputs,
            "kills": len(self.runs) - self.missed,
            "kills_missed": self.missed,
            "places_left_out": self.left_out,
            "seconds": round(self.seconds, 1),
            "nodes": [
                {"node": node, "verdict": words(self.verdict, node)} for node in self.verdict.nodes
            ],
            "faults": [asdict(fault) for fault in self.verdict.faults],
            "notes": self.verdict.notes,
            "runs": [*self.runs],
        }


def words(verdict: Verdict, node: str) -> str:
    """``safe``, ``not attacked`` (no run that could be killed has it), or what is wrong."""
    kinds = dict.fromkeys(_VERDICTS[fault.kind] for fault in verdict.of(node))
    return ", ".join(kinds) or ("safe" if node in verdict.attacked else "not attacked")


def show(report: AttackReport, console: Console) -> None:
    """The table, and what it can't hold."""
    table = Table()
    for heading in ("node", "verdict", "where", "what"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("node", "where"))
    for node in report.verdict.nodes:
        faults = report.verdict.of(node)
        if not faults:
            word = words(report.verdict, node)
            table.add_row(Text(node), Text(word, style="green" if word == "safe" else ""), "", "")
        for fault in faults:
            kind = Text(_VERDICTS[fault.kind], style="bold red")
            what = f"{said(fault)} ({shown_in(fault)})"
            table.add_row(Text(node), kind, Text(fault.where), Text(what))
    console.print(Group(table, *(Text(line) for line in closing(report))))


def said(fault: Fault) -> str:
    """What happened, with how often."""
    return f"{fault.what}, {fault.times} times" if fault.times else fault.what


def shown_in(fault: Fault) -> str:
    """Which runs show it."""
    runs = fault.runs
    listed = ", ".join(runs[:2]) + (f" and {len(runs) - 2} more" if len(runs) > 2 else "")
    return "all runs, killed or not" if fault.without_kill else listed


def closing(report: AttackReport) -> list[str]:
    """The sentences below the table."""
    died = len(report.runs) - report.missed
    what = "input" if report.inputs == 1 else "inputs"
    lines = [
        f"{report.inputs} {what}, {died} kills, each in a run of its own, {report.seconds:.0f} s."
    ]
    if report.missed:
        lines.append(f"{report.missed} runs did not come to the place where they were to die.")
    if report.left_out:
        lines.append(f"{report.left_out} places were left out; --kills takes more.")
    lines += [f"Note: {note}." for note in report.verdict.notes]
    faults = len(report.verdict.faults)
    if faults and any(f.kind == "repeats" for f in report.verdict.faults):
        lines.append(
            "A call in a node is repeated with its node; make it an effect (docs/effects.md). "
            "--harmless HOST takes a host out, such as a model's: repeating costs money there."
        )
    found = f"{faults} fault{'s' if faults != 1 else ''} found."
    return [*lines, found if faults else "No fault found."]


def kill_dict(kill: Kill) -> dict[str, Any]:
    """A kill as the report's runs have it."""
    return {**asdict(kill), "words": kill.words()}
