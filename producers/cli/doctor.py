"""`fleet doctor`: what is wrong with this fleet, and how it is mended."""

from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json
from .output import print_json

if TYPE_CHECKING:
    from ..doctor.finding import Finding

_COLOURS = {"ok": "green", "note": "blue", "warning": "yellow", "problem": "red"}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    before_deploy: Annotated[
        bool,
        typer.Option(
            "--before-deploy",
            help="Also list the threads that this checkout's graphs would leave behind.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Look at everything the fleet stands on; exit 1 where there is a problem.

    Nothing is written anywhere. The graphs of this folder are imported, as a worker would.
    """
    from infra.settings import get_settings

    from ..doctor.checkup import checkup

    findings = []
    for finding in checkup(get_settings(), before_deploy=before_deploy):
        findings.append(finding)
        if not as_json:
            _show(finding)
    problems = [f for f in findings if f.level == "problem"]
    if as_json:
        print_json({"ok": not problems, "checks": findings})
    else:
        warnings = sum(f.level == "warning" for f in findings)
        typer.echo(f"\nChecks: {len(findings)}. Problems: {len(problems)}. Warnings: {warnings}.")
    if problems:
        raise typer.Exit(1)


def _show(finding: "Finding") -> None:
    from .output import cell

    level = typer.style(f"{finding.level:<8}", fg=_COLOURS[finding.level])
    typer.echo(f"{level} {finding.check}: {cell(finding.said, 2000)}")
    if finding.fix:
        typer.echo(f"         fix: {cell(finding.fix, 2000)}")
