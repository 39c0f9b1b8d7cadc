"""`fleet threads --watch`: the list kept up to date on a terminal, else a line a change."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import typer

from ..errors import FleetUnavailable
from .failures import note
from .output import cell, plain, table_of

if TYPE_CHECKING:
    from ..status import ThreadRow

Look = Callable[[], list["ThreadRow"]]


def watch(look: Look, every: float, as_json: bool, columns: Sequence[str]) -> NoReturn:
    """Until Ctrl-C, which is how it ends. An outage is waited out once it has begun."""
    found = look()
    try:
        if sys.stdout.isatty() and not as_json:
            _on_screen(look, found, every, columns)
        _as_lines(look, found, every, as_json, columns)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _on_screen(
    look: Look, found: list["ThreadRow"], every: float, columns: Sequence[str]
) -> NoReturn:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            # What does not fit on the screen changed longest ago.
            shown = found[: max(1, console.height - 5)]
            now = time.strftime("%H:%M:%S")
            title = f"{now}: threads, those that changed last first; Ctrl-C ends"
            live.update(table_of(title, columns, [row.model_dump() for row in shown]), refresh=True)
            time.sleep(every)
            found = _again(look, found)


def _as_lines(
    look: Look, found: list["ThreadRow"], every: float, as_json: bool, columns: Sequence[str]
) -> NoReturn:
    if not as_json:
        typer.echo("\t".join(columns))
    seen: dict[str, ThreadRow] = {}
    while True:
        for row in reversed(found):
            if seen.get(row.thread_id) != row:
                typer.echo(_line(row, as_json, columns))
        sys.stdout.flush()
        seen = {row.thread_id: row for row in found}
        time.sleep(every)
        found = _again(look, found)


def _line(row: "ThreadRow", as_json: bool, columns: Sequence[str]) -> str:
    if as_json:
        return json.dumps(row, default=plain)
    facts = row.model_dump()
    return "\t".join(cell(facts.get(column)) for column in columns)


def _again(look: Look, before: list["ThreadRow"]) -> list["ThreadRow"]:
    """What is seen now; the same as before while Postgres can't be asked."""
    try:
        return look()
    except FleetUnavailable as error:
        if not sys.stdout.isatty():
            note(f"{error.message} Trying again.")
        return before
