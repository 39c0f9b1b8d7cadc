"""The command line: `fleet`.

Data goes to stdout, messages to stderr; exit code 0 done, 1 failed, 2 usage. A mistake
of the user's gets one line ("error: …"), with --json an error object, never a traceback.
Commands import what they need when they run, so that all of them start fast; that goes
for the modules of other commands too (`up`, `demo`, `bench`), which join in by a function
`register(app: typer.Typer) -> None`.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from ..local.signals import insisting
from . import (
    amend,
    complete,
    decide,
    follow,
    fork,
    gateway,
    graphs,
    health,
    history,
    keys,
    look,
    notifications,
    operate,
    prune,
    send,
    setup,
    submit,
)
from .failures import exit_code, tell, tell_usage
from .helptext import flowing

app = typer.Typer(
    name="fleet",
    help="Runs LangGraph agents on Celery workers: every accepted task reaches its end, once.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"fleet {version('threadfleet')}")
        except PackageNotFoundError:
            typer.echo("fleet (not installed)")
        raise typer.Exit


@app.callback()
def _fleet(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Options that stand before the command."""


for module in (
    submit,
    send,
    look,
    follow,
    decide,
    notifications,
    operate,
    amend,
    history,
    fork,
    graphs,
    setup,
    health,
    prune,
    gateway,
    keys,
):
    module.register(app)
for name in ("up", "demo", "bench", "chaos", "doctor"):
    if find_spec(f"{__name__}.{name}") is not None:
        import_module(f"{__name__}.{name}").register(app)


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    if os.environ.get("_FLEET_COMPLETE") == "complete_bash":
        return complete.in_bash(lambda: _run(args))
    return _run(args)


def _run(args: Sequence[str] | None) -> int:
    given = list(sys.argv[1:] if args is None else args) or ["--help"]
    as_json = "--json" in given
    try:
        command = flowing(typer.main.get_command(app))
        with insisting():
            done = command.main(given, prog_name="fleet", standalone_mode=False)
            sys.stdout.flush()
        return done if isinstance(done, int) else 0
    except BrokenPipeError:
        return _reader_gone()
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        (tell_usage if code == 2 and not hasattr(error, "hint") else tell)(error, as_json)
        return code


def _reader_gone() -> int:
    """`fleet threads | head`: nobody reads on, which is no failure worth words."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
