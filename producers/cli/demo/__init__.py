"""`fleet demo`: the main job in one command, on servers of its own that leave no trace."""

import sys
from typing import Annotated

import typer

from ..options import Json


def register(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    orders: Annotated[
        int, typer.Option("--orders", min=1, max=100, help="How many refunds; every second asks.")
    ] = 8,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Ask nothing: approve all but the last that waits."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Kill a worker between "the shop has paid" and "we have recorded it", and look on.

    Starts Postgres, a broker, a shop and Celery workers in a temporary folder. Exits with 0
    only if the shop's own books say that each order was refunded exactly once or, where
    rejected, not at all.
    """
    from ...local.signals import STOPPED, ending_on_signals
    from .screen import NoTerminal, Screen
    from .story import run

    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NoTerminal
    screen = Screen()
    with ending_on_signals():
        try:
            ended = run(orders, screen, screen.approve_most if yes else screen.ask)
        except STOPPED:
            screen.say("Stopped. Nothing is left running.")
            raise
    if as_json:
        from ..output import print_json

        print_json(ended.as_dict())
    else:
        screen.show(ended)
    if not ended.ok:
        raise typer.Exit(1)
