"""`fleet migrate`: bring the database up to date and register the graphs."""

import typer

from .options import Json
from .output import print_json


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate)


def migrate(as_json: Json = False) -> None:
    """Create or update the fleet's tables; safe to repeat and to run several at once."""
    from graphs.registry import Registry
    from infra.migrate import migrate as apply
    from infra.settings import get_settings

    settings = get_settings()
    url = settings.require_postgres()
    graphs = Registry.load(settings.graphs_path).described()
    applied = apply(url, graphs)
    names = [graph["graph"] for graph in graphs]
    if as_json:
        print_json({"applied": applied, "graphs": names})
        return
    typer.echo(f"applied: {', '.join(applied) or 'nothing, the database is up to date'}")
    typer.echo(f"graphs: {', '.join(names) or 'none'}")
