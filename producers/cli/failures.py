"""Errors as the command line shows them: one line, or one object for a machine.

error: Postgres can't be reached: connection refused. Nothing was accepted; …
{"error": {"code": "fleet_unavailable", "message": "…", "hint": "…"}}
"""

import json
import sys
from typing import Any

import typer
from typer.exceptions import TyperException

from ..errors import ProducerError, UnknownGraph


def exit_code(error: Exception) -> int | None:
    """1 or 2 for what a user should read; None for a fault of ours."""
    if isinstance(error, ProducerError | TyperException):
        return error.exit_code
    if isinstance(error, _of("infra.errors", "FleetError")):
        return int(getattr(error, "exit_code", 1))
    if isinstance(error, _of("psycopg", "OperationalError")):
        return 1
    return None


def _of(module: str, name: str) -> type[BaseException] | tuple[()]:
    """A class, if anything loaded its module: an instance of it can't exist otherwise."""
    found: type[BaseException] | tuple[()] = getattr(sys.modules.get(module), name, ())
    return found


def tell(error: Exception, as_json: bool) -> None:
    """The error on stderr."""
    if isinstance(error, UnknownGraph):
        from .unloaded import explain

        explain(error)
    message = getattr(error, "message", None) or str(error)
    hint = getattr(error, "hint", "")
    if as_json:
        told = error.as_dict() if isinstance(error, ProducerError) else None
        data = getattr(error, "data", {})
        code = getattr(error, "code", "failed")
        _object(told or {"code": code, "message": message, "hint": hint, **data})
    else:
        _line(f"error: {error if hint else message}")


def tell_usage(error: Exception, as_json: bool) -> None:
    """A wrong command line."""
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", "fleet")
    message = error.format_message() if isinstance(error, TyperException) else str(error)
    # "Value error" is pydantic's word for a bad choice.
    message = message.replace("Value error, ", "").rstrip(".")
    message = message if message.endswith(("?", "!")) else f"{message}."
    hint = f"See `{path} --help`."
    if as_json:
        _object({"code": "usage", "message": message, "hint": hint})
    else:
        _line(f"error: {message} {hint}")


def note(text: str) -> None:
    """A message beside the data."""
    _line(text)


def _object(error: dict[str, Any]) -> None:
    typer.echo(json.dumps({"error": error}, default=str), err=True)


def _line(text: str) -> None:
    flat = " ".join(text.split())
    typer.echo("".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat), err=True)
