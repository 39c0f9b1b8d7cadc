"""`fleet prune`: remove what retention no longer keeps, or count it."""

from typing import Annotated

import typer

from .failures import note
from .options import Json
from .output import print_json, print_table

#: Threads named in the warning about a history that has to stay.
_NAMED = 5


def register(app: typer.Typer) -> None:
    app.command()(prune)


def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count what would go; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Remove what finished threads have kept for longer than the FLEET_KEEP_… settings say.

    Workers do the same every hour. Threads that are not done or cancelled are never touched.
    """
    import contextlib
    from dataclasses import asdict

    from infra.migrate import require_migrated
    from infra.postgres import connect
    from infra.retention import Policy, Pruning
    from infra.settings import get_settings

    settings = get_settings()
    policy = Policy.of(settings)
    with contextlib.closing(connect(settings.require_postgres(), "fleet-prune")) as conn:
        require_migrated(conn)
        report = Pruning(conn, policy, dry_run=dry_run, afresh=True).run()
    removed = dict(sorted(report.removed.items()))
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "removed": removed,
                "delta_threads": report.delta_threads,
                "keep_days": asdict(policy),
            }
        )
        return
    print_table("", ("table", "rows"), [{"table": t, "rows": n} for t, n in removed.items()])
    if report.delta_threads:
        _tell_kept(report.delta_threads)
    if dry_run:
        note("Nothing was removed: this was a dry run.")


def _tell_kept(threads: list[str]) -> None:
    more = len(threads) - _NAMED
    note(
        f"The history of {len(threads)} thread(s) is left alone, since their values are rebuilt "
        f"from it (DeltaChannel): {', '.join(threads[:_NAMED])}"
        + (f" and {more} more." if more > 0 else ".")
    )
