"""Named queries, migrations and functions: all SQL of the project lives beside this file.

A query file holds blocks that open with ``-- name: NAME``; :func:`query` gives a block's text.
"""

import re
from functools import cache
from importlib.resources import files
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@cache
def _queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(files(__name__).iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".sql"):
            continue
        parts = _NAME.split(entry.read_text("utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            if name in found:
                raise ValueError(f"query {name!r} is defined twice; second time in {entry.name}")
            found[name] = text.strip().rstrip(";")
    return found


def query(name: str) -> LiteralString:
    """Text of the named query, without its closing semicolon. KeyError: no such name."""
    return statement(_queries()[name])


def statement(text: str) -> LiteralString:
    """Text that was read from one of our .sql files, for psycopg's types."""
    return text


def scripts(folder: str) -> list[tuple[str, str]]:
    """(file name, text) of every script in ``migrations`` or ``functions``, in order of name."""
    entries = [e for e in (files(__name__) / folder).iterdir() if e.name.endswith(".sql")]
    return [(e.name, e.read_text("utf-8")) for e in sorted(entries, key=lambda e: e.name)]
