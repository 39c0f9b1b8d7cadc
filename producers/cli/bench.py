"""`fleet bench refund`, `fleet bench live`: the fleet's numbers on this machine. Benchmarks, not
tests."""

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

#: Part, key in it, what it is, and the goal.
_LIVE_KEYS = (
    ("idle", "rss_mb", "memory of a gateway with {sessions} idle sessions, MB", "< 400"),
    ("idle", "cpu_cores", "its CPU meanwhile, cores", ""),
    ("tokens", "p50", "word to page, {sessions} streams, median, ms", "≤ 80"),
    ("tokens", "p99", "word to page, 99th percentile, ms", "≤ 250"),
    ("tokens", "tokens_per_s", "words in a second", ""),
    ("reconnect", "p50", "coming back with {missed} missed events, median, ms", "< 50"),
    ("reconnect", "p99", "coming back, 99th percentile, ms", ""),
    ("kills", "kills", "kills during streams", ""),
    ("kills", "turns", "turns meanwhile", ""),
    ("kills", "differences", "transcripts other than without kills", "0"),
)


class LivePart(StrEnum):
    idle = "idle"
    tokens = "tokens"
    reconnect = "reconnect"
    kills = "kills"


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
    readers: Annotated[
        bool, typer.Option("--readers", help="Workers publish events, as with a gateway.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Refunds against plain LangGraph, takeover after kill -9, and stopping on SIGTERM.

    On servers of its own; takes about five minutes. See docs/benchmarks.md for the method.
    """
    from ..local.host import default_concurrency

    if readers and only in (Part.takeover, Part.sigterm):
        raise typer.BadParameter(f"{only} is not about throughput.", param_hint="--readers")
    found: dict[str, Any] = {"cores": default_concurrency(), "readers": readers}
    found |= {key: None for key, _, _ in _KEYS}
    if only in (None, Part.throughput, Part.commits):
        found |= _load(pairs, orders, batch, compare=only is not Part.commits, readers=readers)
    if only in (None, Part.takeover, Part.sigterm):
        found |= _losses(kills, only)
    if as_json:
        print_json(found)
    else:
        _print(found)


@app.command()
def live(
    idle: Annotated[int, typer.Option("--idle", min=1, max=10_000, help="Idle sessions.")] = 2000,
    streams: Annotated[
        int, typer.Option("--streams", min=1, max=1000, help="Sessions that stream at once.")
    ] = 100,
    seconds: Annotated[
        int, typer.Option("--seconds", min=5, max=120, help="How long each streams.")
    ] = 20,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=16, help="Worker processes of the streams.")
    ] = 1,
    kills: Annotated[
        int, typer.Option("--kills", min=1, max=2000, help="Kills during streams.")
    ] = 200,
    only: Annotated[LivePart | None, typer.Option("--only", help="One part of it.")] = None,
    as_json: Json = False,
) -> None:
    """Chat pages over WebSocket: memory, the way of a word, coming back, and kills of gateways,
    workers and the broker during streams.

    On servers of its own; takes about eight minutes. See docs/benchmarks.md for the method.
    Exit code 1: a page showed something else than without kills.
    """
    from ..bench import live as parts
    from ..local.host import default_concurrency

    measured = {
        LivePart.idle: lambda: parts.idle(idle, note),
        LivePart.tokens: lambda: parts.tokens(streams, seconds, workers, note),
        LivePart.reconnect: lambda: parts.reconnect(note),
        LivePart.kills: lambda: parts.kills(kills, note),
    }
    found: dict[str, Any] = {"cores": default_concurrency()}
    for part in LivePart:
        if only in (None, part):
            note(f"starting servers for {part} ...")
            load = parts.load_average()
            found[part.value] = measured[part]() | {"load_average": [load, parts.load_average()]}
    if as_json:
        print_json(found)
    else:
        _print_live(found)
    if found.get("kills", {}).get("differences"):
        raise typer.Exit(1)


def _print_live(found: dict[str, Any]) -> None:
    rows = [
        {"measure": words.format(**found[part]), "here": f"{found[part][key]:g}", "goal": goal}
        for part, key, words, goal in _LIVE_KEYS
        if part in found and key in found[part]
    ]
    rows += [
        {
            "measure": f"load average, {part}, before and after",
            "here": " ".join(f"{load[0]:g}" for load in found[part]["load_average"]),
            "goal": "",
        }
        for part in LivePart
        if part in found
    ]
    print_table(f"fleet bench live, {found['cores']} cores", ("measure", "here", "goal"), rows)
    for fault in found.get("kills", {}).get("faults", ())[:10]:
        note(fault)


def _load(pairs: int, orders: int, batch: int, compare: bool, readers: bool) -> dict[str, Any]:
    from ..bench.pairs import measure, measure_commits
    from ..bench.rig import Rig

    note("starting servers and workers for throughput ...")
    with Rig() as rig:
        if readers:
            rig.have_readers()
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
