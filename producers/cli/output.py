"""Data on stdout: JSON for machines, tables on a terminal, tab-separated lines in a pipe."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import typer

from ..payloads import shown

if TYPE_CHECKING:
    from rich.table import Table


def print_json(data: Any) -> None:
    """One JSON document; only ASCII, whatever the terminal's encoding."""
    typer.echo(json.dumps(data, default=plain, indent=2 if sys.stdout.isatty() else None))


def plain(value: Any) -> Any:
    """For json.dumps: what JSON lacks, in the plainest form."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else str(value)


def cell(value: Any, longest: int = 120) -> str:
    """A value in one line that can't move a terminal's cursor."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().isoformat(sep=" ", timespec="seconds")
    text = value if isinstance(value, str) else json.dumps(value, default=plain, ensure_ascii=False)
    return shown(text, longest)


def named(name: str, value: Any, longest: int = 120) -> str:
    """A cell by its name: a time, whether it came as one or as JSON has it, looks the same."""
    if isinstance(value, str) and (name == "at" or name.endswith("_at")):
        with contextlib.suppress(ValueError):
            value = datetime.fromisoformat(value)
    return cell(value, longest)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Columns by name; a header and tab-separated lines when nobody looks."""
    lines = [[named(column, row.get(column)) for column in columns] for row in rows]
    if not sys.stdout.isatty():
        for line in [list(columns), *lines]:
            typer.echo("\t".join(line))
        return
    from rich.console import Console

    Console().print(_table(title, columns, lines))


def table_of(title: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> "Table":
    """The table as rich shows it, for what stays on the screen."""
    lines = [[named(column, row.get(column)) for column in columns] for row in rows]
    return _table(title, columns, lines)


def _table(title: str, columns: Sequence[str], lines: Iterable[Sequence[str]]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        # An id that is to be copied stays in one piece; other columns give way.
        whole = column == "checkpoint" or column.endswith("_id")
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=whole)
    for line in lines:
        table.add_row(*(Text(text) for text in line))
    return table


def print_facts(facts: Mapping[str, Any]) -> None:
    """Names and values, one per line; those without a value are left out."""
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name.replace('_', ' ')}: {named(name, value, 2000)}")
