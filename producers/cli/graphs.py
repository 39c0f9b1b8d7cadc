"""`fleet graphs`: what the graphs file names, as far as it can be told without running it."""

from typing import Any

import typer

from .options import Json
from .output import print_facts, print_json, print_table

_COLUMNS = ("graph", "queue", "nodes", "effects", "problems")


def register(app: typer.Typer) -> None:
    app.command("graphs")(graphs)


def graphs(as_json: Json = False) -> None:
    """List the graphs of this checkout: nodes, effects with their policy, and problems."""
    from graphs.inspection import inspected, notes
    from graphs.registry import Registry
    from infra.settings import get_settings

    path = get_settings().graphs_path
    registry = Registry.load(path)
    found = [inspected(registry, name) for name in registry.names()]
    noted = notes(registry)
    if as_json:
        print_json({"file": str(path.absolute()), "graphs": found, "notes": noted})
    else:
        print_table("", _COLUMNS, [_row(about) for about in found])
        for about in found:
            for problem in about["problems"]:
                # The sentence on one that can't be loaded begins with its name.
                said = problem.removeprefix(f"Graph {about['graph']!r} ")
                print_facts({about["graph"]: said})
        for note in noted:
            print_facts({path.name: note})


def _row(about: dict[str, Any]) -> dict[str, Any]:
    return {
        "graph": about["graph"],
        "queue": about["queue"],
        "nodes": ", ".join(node["name"] for node in about["nodes"]),
        "effects": ", ".join(f"{e['name']} ({e['on_doubt']})" for e in about["effects"]),
        "problems": len(about["problems"]) or None,
    }
