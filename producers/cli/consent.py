"""Asking before something is done that can't be taken back."""

import sys
from typing import Annotated

import typer
from typer.exceptions import TyperException

from .failures import note

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class NeedsYes(TyperException):
    """A usage error: nobody is there to be asked."""

    exit_code = 2


def agree(warning: str, question: str, yes: bool) -> None:
    """Return when it is to be done: after --yes, or a yes at the terminal.

    Without either it is a usage error where nobody can be asked, and Abort after a no.
    """
    if not yes and not sys.stdin.isatty():
        raise NeedsYes(f"Nobody can be asked here, so that this needs --yes: {warning}")
    note(warning)
    if not yes and not typer.confirm(question, err=True):
        raise typer.Abort
