"""`fleet migrate`: bring the database up to date and register the graphs."""

from typing import Annotated

import typer

from .failures import note
from .options import Json
from .output import print_json


def register(app: typer.Typer) -> None:
    app.command("migrate")(migrate)


def migrate(
    post: Annotated[
        bool,
        typer.Option("--post", help="Apply what has to wait until no older worker runs."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Create or update the fleet's tables; safe to repeat and to run several at once.

    What workers of an older release can't live with is left for --post.
    """
    from graphs.registry import Registry
    from infra import migrate as migrations
    from infra.postgres import connect
    from infra.settings import get_settings

    settings = get_settings()
    url = settings.require_postgres()
    if post:
        graphs, applied = [], migrations.migrate_post(url)
    else:
        registry = Registry.load(settings.graphs_path)
        graphs = registry.described()
        applied = migrations.migrate(url, graphs, registry.store.dims)
    with connect(url, "fleet-migrate") as conn:
        left, ahead = migrations.left(conn), migrations.ahead(conn)
    names = [graph["graph"] for graph in graphs]
    if as_json:
        print_json({"applied": applied, "graphs": names, "left": left, "ahead": ahead})
    else:
        typer.echo(f"applied: {', '.join(applied) or 'nothing, the database is up to date'}")
        if not post:
            typer.echo(f"graphs: {', '.join(names) or 'none'}")
    if left:
        note(
            f"{', '.join(left)} waits until no worker of an older release runs: then run "
            "`fleet migrate --post`."
        )
    if ahead:
        note(f"The database is newer than this code, which left it as it is: {', '.join(ahead)}.")
