"""Options and arguments that several commands share."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..payloads import once_each
from . import complete

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Thread = Annotated[
    str,
    typer.Argument(
        help="The thread's id, for example refund:A1001.", autocompletion=complete.threads
    ),
]
MessageId = Annotated[
    str | None,
    typer.Option("--message-id", help="Idempotency key: sent again, it counts once."),
]
Tenant = Annotated[str, typer.Option("--tenant", help="Whose threads; the default tenant's.")]


def read_json(text: str, option: str) -> Any:
    """The value of JSON, @file or - (stdin); a usage error names the option."""
    source = text
    try:
        if text == "-":
            source = sys.stdin.buffer.read().decode()
        elif text.startswith("@"):
            source = Path(text[1:]).read_bytes().decode()
        return json.loads(source, object_pairs_hook=once_each)
    except OSError as exc:
        reason = f"{text[1:]} can't be read: {exc.strerror}"
    except UnicodeDecodeError:
        reason = "it is not UTF-8"
    except RecursionError:
        reason = "it is nested too deeply"
    except ValueError as exc:
        reason = f"it is not JSON: {exc}"
        if not source.lstrip().startswith(("{", "[", '"')):
            reason += '; JSON text stands in double quotes: "yes"'
    raise typer.BadParameter(f"{reason}.", param_hint=option)
