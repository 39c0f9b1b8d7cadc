"""One attack on one graph, from the files that a user gives to the report."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphs.registry import RegisteredGraph
from infra.errors import ServerFailed

from .errors import ChaosFailed
from .given import Answers, Input
from .kills import hits, met
from .record import read
from .report import AttackReport, kill_dict
from .stage import Stage
from .timeline import timeline
from .trial import Run, Trial
from .trial_file import TrialFile
from .verdict import judge

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line asks for. patience: seconds without progress after which a run
    is taken for stuck. kills: at most so many per input."""

    graphs_file: Path
    graph: RegisteredGraph
    inputs: list[Input]
    answers: Answers
    results: dict[str, Any]
    real: bool
    allow: Collection[str]
    harmless: Collection[str]
    slots: int
    patience: float
    kills: int


def attack(wishes: Wishes, say: Say) -> AttackReport:
    """Run, kill, compare. Raises ChaosUsage, ChaosFailed and FleetError."""
    begun = time.monotonic()
    say("Starting Postgres, a broker and a shop, in a temporary folder.")
    with Stage(wishes.graphs_file, _trial_file(wishes), wishes.slots, wishes.patience) as stage:
        trial = Trial(stage, wishes.graph, wishes.answers, wishes.patience)
        try:
            say(f"Running {_counted(len(wishes.inputs), 'input')} twice without faults.")
            baseline = trial.without_faults(wishes.inputs)
            places = sum(len(met(stage.log, r.thread_id)) for r in baseline[::2])
            ends = [r for r in baseline[::2] if r.status == "done"]
            say(f"They met {places} places. Killing a run of its own at each.")
            killed = trial.killed(baseline, wishes.kills) if ends else []
        except ServerFailed as exc:
            raise ChaosFailed(exc.message, "Run it again.") from exc
        facts = [*read(stage.record)]
        acted = hits(stage.log)
        runs = [_run(run, facts, stage, acted) for run in killed]
    verdict = judge(baseline, killed, facts, wishes.harmless)
    left_out = places - len(killed) if ends else 0
    took = time.monotonic() - begun
    return AttackReport(wishes.graph.name, len(wishes.inputs), verdict, runs, left_out, took)


def _trial_file(wishes: Wishes) -> TrialFile:
    """What the user decides of it; the stage fills in the rest."""
    return TrialFile(
        record=Path(),
        folder=Path.cwd(),
        project=wishes.graphs_file.absolute().parent,
        results=wishes.results,
        real=wishes.real,
        allow=tuple(wishes.allow),
    )


def _run(run: Run, facts: list[dict[str, Any]], stage: Stage, acted: set[str]) -> dict[str, Any]:
    assert run.kill is not None
    return {
        "run": run.name,
        "key": run.input.key,
        "kill": kill_dict(run.kill),
        "hit": run.kill.name(run.thread_id) in acted,
        "status": run.status,
        "error": run.error,
        "timeline": timeline(run, facts, stage.once),
    }


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
