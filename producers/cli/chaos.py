"""`fleet chaos GRAPH --inputs FILE`: kill a graph at every step that it has, and say what came
of it; `fleet chaos --minutes N`: the same for the fleet itself, at random."""

import random
from pathlib import Path
from typing import Annotated, Any

import typer

from . import complete
from .consent import Yes, agree
from .failures import note
from .options import Json


def register(app: typer.Typer) -> None:
    app.command()(chaos)


def chaos(
    graph: Annotated[
        str | None,
        typer.Argument(
            help="The graph, by its name in the graphs file.", autocompletion=complete.graphs
        ),
    ] = None,
    inputs: Annotated[
        str | None,
        typer.Option("--inputs", help="JSON Lines, as `fleet submit --from` takes them."),
    ] = None,
    answers: Annotated[
        Path | None,
        typer.Option("--answers", help='JSON: ["approved"] or {"approve": […], "value": […]}.'),
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", help="JSON: what effects give, by their names."),
    ] = None,
    real_effects: Annotated[
        bool, typer.Option("--real-effects", help="Call the effects' functions for real.")
    ] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", help="A host to be reached besides this machine."),
    ] = None,
    harmless: Annotated[
        list[str] | None,
        typer.Option("--harmless", help="A host at which repeated calls do no harm."),
    ] = None,
    kills: Annotated[
        int, typer.Option("--kills", min=1, max=5000, help="At most so many for each input.")
    ] = 200,
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=64, help="Runs at the same time.")
    ] = 4,
    patience: Annotated[
        float,
        typer.Option("--patience", min=1, help="Seconds without progress: a run is stuck."),
    ] = 60.0,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with each run's timeline.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", min=0.1, help="Without a graph: refunds under random kills."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", min=0, help="With --minutes: the plan of kills of an earlier run."),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Kill a graph at every step that it has, each in a run of its own, and compare.

    On servers of its own, never yours. Effects are answered by a stand-in that records them;
    other calls of nodes are recorded and, but to this machine, refused. Says of each node
    whether it is safe, repeats a side effect, loses an answer, ends in another state or
    never. Exit code 0: no fault; 1: a fault was found.
    """
    if graph is None or inputs is None:
        _soak_or_usage(graph, minutes, seed, as_json)
        return
    from ..chaos.errors import ChaosUsage
    from ..local.signals import STOPPED, ending_on_signals

    if minutes is not None or seed is not None:
        given = "--minutes" if minutes is not None else "--seed"
        raise ChaosUsage(f"{given} is for `fleet chaos` without a graph.", "Leave one out.")
    wishes = _wishes(graph, inputs, answers, results)
    _confirm(real_effects, allow or [], yes)
    if html is not None:
        _require_writable(html)
    with ending_on_signals():
        try:
            report = _attack(
                **wishes,
                real=real_effects,
                allow=allow or [],
                harmless=harmless or [],
                slots=slots,
                patience=patience,
                kills=kills,
            )
        except STOPPED:
            note("Stopped. Nothing is left running.")
            raise
    _tell(report, as_json, html)


def _soak_or_usage(
    graph: str | None, minutes: float | None, seed: int | None, as_json: bool
) -> None:
    """Without a graph: the soak of the fleet itself."""
    from ..chaos.errors import ChaosUsage

    if graph is not None:
        raise ChaosUsage(f"No inputs of {graph} are given.", "Give them with --inputs FILE.")
    if minutes is None:
        raise ChaosUsage("No graph is given.", "Write `fleet chaos GRAPH --inputs FILE`.")
    _soak(minutes, seed, as_json)


def _soak(minutes: float, seed: int | None, as_json: bool) -> None:
    """Print what it found; exit code 1 for a fault."""
    from ..chaos.soak import Wishes, soak
    from ..local.signals import STOPPED, ending_on_signals
    from .output import print_json

    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    with ending_on_signals():
        try:
            found = soak(Wishes(minutes * 60, seed), note, Path.cwd() / f"chaos-{seed}")
        except STOPPED:
            note("Stopped. Nothing is left running.")
            raise
    if as_json:
        print_json(found.as_dict())
    else:
        found.show()
    if not found.ok:
        raise typer.Exit(1)


def _wishes(graph: str, inputs: str, answers: Path | None, results: Path | None) -> dict[str, Any]:
    """What the files say, checked before anything starts."""
    from graphs.registry import Registry
    from infra.errors import RegistryError
    from infra.settings import get_settings

    from ..chaos import given
    from ..chaos.errors import ChaosUsage

    file = get_settings().graphs_path
    try:
        found = Registry.load(file).get(graph)
    except RegistryError as error:
        raise ChaosUsage(error.message, error.hint, **error.data) from error
    return {
        "graphs_file": file,
        "graph": found,
        "inputs": given.read_inputs(inputs, found),
        "answers": given.read_answers(answers),
        "results": given.read_results(results, found),
    }


def _confirm(real: bool, allow: list[str], yes: bool) -> None:
    """Real calls are made once for each kill: a person says that this is meant."""
    effects = ["the effects' functions"] if real else []
    if what := " and ".join(effects + ([", ".join(allow)] if allow else [])):
        agree(f"This calls {what} for real, once for each kill.", "Go on?", yes)


def _require_writable(path: Path) -> None:
    from ..chaos.errors import ChaosUsage

    try:
        path.open("a").close()
    except OSError as exc:
        raise ChaosUsage(
            f"--html: {path} can't be written: {exc.strerror}.", "Name another."
        ) from None


def _attack(**wishes: Any) -> Any:
    from ..chaos.attack import Wishes, attack

    return attack(Wishes(**wishes), note)


def _tell(report: Any, as_json: bool, html: Path | None) -> None:
    """The report, and its exit code."""
    from ..chaos.page import page
    from ..chaos.report import show
    from .output import print_json

    if html is not None:
        html.write_text(page(report), encoding="utf-8")
        note(f"The timelines are in {html}.")
    if as_json:
        print_json(report.as_dict())
    else:
        from rich.console import Console

        show(report, Console(highlight=False))
    if not report.verdict.safe:
        raise typer.Exit(1)
