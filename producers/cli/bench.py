"""`fleet bench refund`: the fleet's numbers on this machine. A benchmark, not a test."""

import json
import os
from typing import Annotated, Any

import typer

_SUMMARY = (
    ("ratio_to_plain_langgraph", "refunds/s, times plain LangGraph's", "≥ 1.2"),
    ("cpu_ratio", "CPU per refund, times plain LangGraph's", "≤ 1.0"),
    ("commits_per_refund", "commits per approved refund", "≤ 7"),
    ("wakeups_per_turn", "wake-ups published per turn", "≤ 0.1"),
    ("takeover_p50_s", "takeover after kill -9, median, s", "≤ 0.6"),
    ("takeover_p99_s", "takeover after kill -9, 99th percentile, s", "≤ 1.5"),
)

app = typer.Typer(help="Measure the fleet on this machine.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure the fleet on this machine."""


@app.command("refund")
def refund(
    pairs: Annotated[int, typer.Option(min=1, max=50, help="Adjacent pairs of runs.")] = 5,
    orders: Annotated[int, typer.Option(min=20, max=5000, help="Refunds in each run.")] = 500,
    kills: Annotated[int, typer.Option(min=1, max=200, help="Kills of each kind.")] = 20,
    only: Annotated[str | None, typer.Option(help="Only one part: throughput or takeover.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Refunds against plain LangGraph, and takeover after kill -9. Takes about six minutes."""
    from producers.bench import load, takeover
    from producers.bench.rig import Rig

    if only not in (None, "throughput", "takeover"):
        raise typer.BadParameter("is throughput or takeover", param_hint="--only")
    found: dict[str, Any] = {"cores": os.cpu_count()}
    if only in (None, "throughput"):
        with Rig() as rig:
            found |= load.pairs(rig, pairs, orders)
    if only in (None, "takeover"):
        with Rig() as rig:
            found |= takeover.measure(rig, kills)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(found)


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"fleet bench refund, {found['cores']} cores")
    for heading in ("", "measured", "goal"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, words, goal in _SUMMARY:
        if name in found:
            table.add_row(words, f"{found[name]:.3g}", goal)
    Console().print(table)


def register(into: typer.Typer) -> None:
    """Add `bench` to the command line."""
    into.add_typer(app, name="bench")
