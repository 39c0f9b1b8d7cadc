"""`fleet bench refund`: the fleet's numbers on this machine. A benchmark, not a test."""

from enum import StrEnum
from typing import Annotated, Any

import typer

from .failures import note
from .options import Json
from .output import print_json, print_table

#: Key, what it is, and the goal on 2 cores.
_KEYS = (
    ("ratio_to_plain_langgraph", "refunds/s, times plain LangGraph's", "≥ 1.2"),
    ("cpu_ratio", "CPU per refund, times plain LangGraph's", "≤ 1.0"),
    ("commits_per_refund", "commits per approved refund", "≤ 7"),
    ("wakeups_per_turn", "wake-ups published per turn", "≤ 0.1"),
    ("takeover_p50_s", "takeover after kill -9, median, s", "≤ 0.6"),
    ("takeover_p99_s", "takeover after kill -9, 99th percentile, s", "≤ 1.5"),
)


class Part(StrEnum):
    throughput = "throughput"
    commits = "commits"
    takeover = "takeover"
    sigterm = "sigterm"


app = typer.Typer(help="Measure the fleet on this machine.")


@app.callback()
def _bench() -> None:
    """Measure the fleet on this machine."""


def register(into: typer.Typer) -> None:
    into.add_typer(app, name="bench")


@app.command()
def refund(
    pairs: Annotated[
        int, typer.Option("--pairs", min=1, max=50, help="Adjacent pairs of runs.")
    ] = 5,
    orders: Annotated[
        int, typer.Option("--orders", min=2, max=4000, help="Refunds in each run.")
    ] = 500,
    kills: Annotated[int, typer.Option("--kills", min=1, max=200, help="Kills of each kind.")] = 20,
    batch: Annotated[
        int, typer.Option("--batch", min=1, max=500, help="Refunds submitted in one transaction.")
    ] = 10,
    only: Annotated[Part | None, typer.Option("--only", help="One part of it.")] = None,
    as_json: Json = False,
) -> None:
    """Refunds against plain LangGraph, takeover after kill -9, and stopping on SIGTERM.

    On servers of its own; takes about five minutes. See docs/benchmarks.md for the method.
    """
    from ..local.host import default_concurrency

    found: dict[str, Any] = {"cores": default_concurrency(), **{key: None for key, _, _ in _KEYS}}
    if only in (None, Part.throughput, Part.commits):
        found |= _load(pairs, orders, batch, compare=only is not Part.commits)
    if only in (None, Part.takeover, Part.sigterm):
        found |= _losses(kills, only)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _load(pairs: int, orders: int, batch: int, compare: bool) -> dict[str, Any]:
    from ..bench.pairs import measure, measure_commits
    from ..bench.rig import Rig

    note("starting servers and workers for throughput ...")
    with Rig() as rig:
        return (measure if compare else measure_commits)(rig, pairs, orders, batch, note)


def _losses(kills: int, only: Part | None) -> dict[str, Any]:
    from ..bench import sigterm, takeover
    from ..bench.rig import Rig

    found: dict[str, Any] = {}
    note("starting servers and workers to be killed ...")
    with Rig() as rig:
        workers = takeover.Workers(rig)
        if only is not Part.sigterm:
            found |= takeover.measure(workers, kills, note)
        if only is not Part.takeover:
            found |= sigterm.measure(workers, max(1, kills // 4), note)
    return found


def _print(found: dict[str, Any]) -> None:
    rows = [
        {"measure": words, "here": f"{found[key]:.3g}", "goal": goal}
        for key, words, goal in _KEYS
        if found[key] is not None
    ]
    if stopped := found.get("sigterm"):
        rows += [
            {
                "measure": "slot free after SIGTERM, longest, s",
                "here": stopped["max_s"],
                "goal": "≤ 1",
            },
            {"measure": "crashes counted by SIGTERM", "here": stopped["crashes"], "goal": "0"},
        ]
    print_table(f"fleet bench refund, {found['cores']} cores", ("measure", "here", "goal"), rows)
