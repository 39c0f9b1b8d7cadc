"""`fleet history`: the checkpoints of a thread, and its state at one of them."""

from typing import Annotated, Any

import typer

from .options import Json, Thread
from .output import print_facts, print_json, print_table

_COLUMNS = ("at", "checkpoint_id", "nodes", "changed", "next")


def register(app: typer.Typer) -> None:
    app.command()(history)


def history(
    thread: Thread,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="CHECKPOINT", help="The whole state at this one."),
    ] = None,
    generation: Annotated[
        int | None,
        typer.Option("--generation", metavar="N", min=1, help="An earlier one, before a restart."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what each step of a thread did, or its state at a checkpoint."""
    from . import checkpoints

    if at is not None:
        found = checkpoints.snapshot(thread, at, generation)
        print_json(found) if as_json else print_facts({k: v for k, v in found.items() if v != []})
        return
    entries = checkpoints.history(thread, generation)
    if as_json:
        print_json({"thread_id": thread, "checkpoints": entries})
    else:
        print_table("", _COLUMNS, [_line(entry) for entry in entries])


def _line(entry: dict[str, Any]) -> dict[str, Any]:
    """For people: who did it, what came of it, and where the thread stood then."""
    nodes = " ".join(entry["nodes"]) or f"({entry['source']})"
    if "amended" in entry:
        nodes += f" (by hand: {entry['amended']['by'] or 'unknown'})"
    following = " ".join(entry["next"]) or "(end)"
    if entry["asks"]:
        following += " (asks)"
    if entry["failed"]:
        following += " (failed)"
    return {**entry, "nodes": nodes, "next": following, "changed": entry["changed"] or None}
