"""`fleet history`: the checkpoints of a thread, and its state at one of them."""

import re
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from .options import Json, Thread
from .output import print_facts, print_json, print_table

_COLUMNS_WITHOUT = ("at", "checkpoint_id", "nodes", "changed", "next")
_COLUMNS = ("at", "checkpoint_id", "subgraph", "nodes", "changed", "next")


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
    """Show what each step of a thread did, or its state at a checkpoint.

    An earlier generation can also be named as LangGraph does: refund:A1001#2.
    """
    from ..past import checkpoints
    from .past import looking_back

    thread, generation = _parted(thread, generation)
    with looking_back() as place:
        if at is not None:
            found = checkpoints.snapshot(place, thread, at, generation)
        else:
            entries = checkpoints.history(place, thread, generation)
    if at is not None:
        facts = {k: v for k, v in found.items() if v not in ([], {})}
        print_json(found) if as_json else print_facts(facts)
        return
    if as_json:
        print_json({"thread_id": thread, "checkpoints": entries})
        return
    columns = _COLUMNS if any(e["subgraph"] for e in entries) else _COLUMNS_WITHOUT
    print_table("", columns, [_line(entry) for entry in entries])


def _parted(thread: str, generation: int | None) -> tuple[str, int | None]:
    """A thread's id with the generation that its end names, if it does; no key ends so."""
    named = re.fullmatch(r"(.+)#([1-9][0-9]{0,8})", thread)
    if named is None:
        return thread, generation
    if generation not in (None, int(named[2])):
        raise typer.BadParameter(f"{thread} names another one.", param_hint="--generation")
    return named[1], int(named[2])


def _line(entry: dict[str, Any]) -> dict[str, Any]:
    """For people: who did it, what came of it, and where the thread stood then."""
    nodes = " ".join(entry["nodes"]) or f"({entry['source']})"
    if "amended" in entry:
        nodes += f" (by hand: {entry['amended']['by'] or 'unknown'})"
    # An input stands before the graph's first step, of which it says nothing.
    following = " ".join(entry["next"]) or ("(start)" if entry["source"] == "input" else "(end)")
    if entry["asks"]:
        following += " (asks)"
    if entry["failed"]:
        following += " (failed)"
    changed = dict(_grown(entry)) | {k: entry[k] for k in ("result", "saved") if k in entry}
    changed |= dict.fromkeys(entry["unknown"], "(not known)")
    return {**entry, "nodes": nodes, "next": following, "changed": changed or None}


def _grown(entry: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What changed, by name; of a list that only grew what came to it: ``"messages + 2"``."""
    for name, value in entry["changed"].items():
        if end := entry["appended"].get(name):
            yield f"{name} + {len(end)}", end
        else:
            yield name, value
