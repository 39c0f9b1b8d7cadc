"""`fleet keys`: API keys of services that come in by the gateway."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Json, Tenant
from .output import print_json, print_table

if TYPE_CHECKING:
    from ..gateway.database import Database
    from ..gateway.principals import Role

keys = typer.Typer(
    name="keys", help="API keys for the gateway: made, listed, revoked.", no_args_is_help=True
)
_COLUMNS = ("key_id", "name", "tenant", "roles", "user_id", "state", "created_at", "expires_at")


def register(app: typer.Typer) -> None:
    app.add_typer(keys)


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, for people: crm, ann's laptop.")],
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="viewer, producer, approver or operator; once for each."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", help="The user that it stands for, if it is one's.")
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", min=0, help="Until it expires; left out: never.")
    ] = None,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Make a key and show it, this once: only a hash of it is kept."""
    from ..gateway import keys as made

    with _database() as database:
        key, row = made.create(
            database, name, _roles(role or []), tenant=tenant, user=user, days=days
        )
    if as_json:
        print_json({"key": key, **row})
        return
    typer.echo(key)
    typer.echo(
        f"Keep it now: it is not shown again. `fleet keys revoke {row['key_id']}` ends it.",
        err=True,
    )


@keys.command("list")
def list_(
    every: Annotated[bool, typer.Option("--all", help="Revoked and expired ones too.")] = False,
    as_json: Json = False,
) -> None:
    """Show the keys that there are, by their ids; nobody can see a key again."""
    from ..gateway import keys as made

    with _database() as database:
        rows = made.listed(database, every=every)
    if as_json:
        print_json({"keys": rows})
        return
    print_table("", _COLUMNS, [{**row, "roles": " ".join(row["roles"])} for row in rows])


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(help="Its id, or the key itself.")],
    as_json: Json = False,
) -> None:
    """End a key: from now on it opens nothing."""
    from ..gateway import keys as made

    with _database() as database:
        row = made.revoke(database, key_id)
    if as_json:
        print_json(row)
        return
    typer.echo(f"{row['key_id']} ({row['name']}) is revoked.")


def _roles(names: list[str]) -> "list[Role]":
    from ..gateway.principals import Role

    for name in names:
        if name not in {role.value for role in Role}:
            known = ", ".join(role.value for role in Role)
            raise typer.BadParameter(f"{name} is no role; there are {known}.", param_hint="--role")
    return [Role(name) for name in names]


@contextmanager
def _database() -> "Iterator[Database]":
    from infra.settings import get_settings

    from ..gateway.database import Database

    settings = get_settings()
    database = Database(settings.require_postgres(), settings.client_timeout)
    try:
        yield database
    finally:
        database.close()
