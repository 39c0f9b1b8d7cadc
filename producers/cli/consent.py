"""Asking before something is done that can't be taken back."""

import sys
from typing import Annotated

import typer

from .failures import note

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def agree(warning: str, question: str, yes: bool) -> None:
    """Return when it is to be done: after --yes, or a yes at the terminal.

    Without either it is a usage error where nobody can be asked, and Abort after a no.
    """
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter(
            f"{warning} Give it to say that this is meant.", param_hint="--yes"
        )
    note(warning)
    if not yes and not typer.confirm(question, err=True):
        raise typer.Abort
