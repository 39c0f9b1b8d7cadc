"""The release before this one, as far as a database can tell; see tests/schemas/README.md."""

import re
from pathlib import Path

import pytest

from infra import migrate as migrations
from infra.sql import query, scripts

#: The newest migration that it knows.
NEWEST = "0005_retention.sql"
_FOLDER = Path(__file__).parent / "schemas" / NEWEST[:4]
_PARAMETER = re.compile(r"%(\(\w+\))?[sb]")


def previous_scripts(folder: str) -> list[tuple[str, str]]:
    """What :func:`infra.sql.scripts` gave in that release."""
    if folder == "functions":
        return [(f.name, f.read_text()) for f in sorted((_FOLDER / folder).glob("*.sql"))]
    return [(name, text) for name, text in scripts(folder) if name <= NEWEST]


def migrate_to_previous(url: str, graphs: list[dict[str, object]]) -> list[str]:
    """Bring a database to where that release's `fleet migrate` brought it."""
    sent = {name.removeprefix("migrate."): text for name, text in _sent("migrate").items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "scripts", previous_scripts)
        patch.setattr(migrations, "query", lambda name: sent.get(name) or query(name))
        return migrations.migrate(url, graphs)


def since() -> list[str]:
    """Migrations that have come since."""
    return [name for name, _ in scripts("migrations") if name > NEWEST]


def statements() -> dict[str, str]:
    """All that its workers and producers send, by file and name, with %s for parameters."""
    return _sent("*")


def _sent(files: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted((_FOLDER / "statements").glob(f"{files}.sql")):
        parts = re.split(r"^-- name: (\w+)\n", file.read_text(), flags=re.MULTILINE)
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            found[f"{file.stem}.{name}"] = text.strip().rstrip(";")
    return found


def without_parameters(statement: str) -> str:
    """The statement with NULL for each parameter: enough for Postgres to plan it."""
    return _PARAMETER.sub("NULL", statement).replace("%%", "%")
