"""`fleet ready`: whether a worker lives and can take turns, for probes and for people."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from .options import Json
from .output import print_json

#: A worker says every 10 s that it is there.
_SEEN = 45.0


def register(app: typer.Typer) -> None:
    app.command()(ready)


def ready(
    worker: Annotated[
        str | None,
        typer.Option("--worker", help="Its name; else the one that FLEET_HEARTBEAT_FILE names."),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Look at the heartbeat file only: is it alive?")
    ] = False,
    as_json: Json = False,
) -> None:
    """Exit 0 when a worker can take turns, 1 when it can't, saying why."""
    if live and worker is not None:
        raise typer.BadParameter("it looks at a file, not at a name", param_hint="--live")
    if worker is not None:
        from ..names import check_text_name

        worker = check_text_name(worker, "worker name")
    checks = [_alive(required=live)]
    if not live:
        checks += [_checked("postgres", _postgres), _checked("broker", _broker)]
        if checks[1]["ok"]:
            named = worker or checks[0].get("worker")
            checks.append(_checked("worker", lambda: _registered(named)))
    checks = [check for check in checks if check["ok"] is not None]
    well = all(check["ok"] for check in checks)
    if as_json:
        print_json({"ready": well, "checks": checks})
    else:
        for check in checks:
            typer.echo(f"{check['name']}: {'ok' if check['ok'] else 'NOT OK'}, {check['detail']}")
    if not well:
        raise typer.Exit(1)


def _alive(required: bool) -> dict[str, Any]:
    """The heartbeat file; ``ok`` is None where none is set and none is required."""
    from infra import heartbeat
    from infra.errors import SettingsError
    from infra.settings import get_settings

    path = get_settings().heartbeat_file
    if path is None:
        if required:
            raise SettingsError(
                "No heartbeat file is set.",
                "Set FLEET_HEARTBEAT_FILE to the file of the worker, for it and for this command.",
            )
        return {"name": "heartbeat", "ok": None}
    found = heartbeat.read(path)
    if found is None:
        return {"name": "heartbeat", "ok": False, "detail": f"no worker has written {path}"}
    return {
        "name": "heartbeat",
        "ok": found.alive,
        "detail": f"{found.worker} wrote {path} {found.age:.0f} s ago",
        "worker": found.worker,
    }


def _checked(name: str, look: Callable[[], str]) -> dict[str, Any]:
    import psycopg
    import redis

    from infra.errors import FleetError

    try:
        return {"name": name, "ok": True, "detail": look()}
    except (FleetError, psycopg.Error, redis.RedisError, _NotReady) as exc:
        return {"name": name, "ok": False, "detail": " ".join(str(exc).split())}


class _NotReady(Exception):
    """A check's reason."""


def _postgres() -> str:
    from infra.migrate import require_migrated
    from infra.postgres import connect
    from infra.settings import get_settings

    with connect(get_settings().require_postgres(), "fleet-ready") as conn:
        require_migrated(conn)
    return "reachable, no migration is missing"


def _broker() -> str:
    import redis

    from infra.settings import get_settings

    url = get_settings().require_redis()
    with redis.Redis.from_url(url, socket_timeout=3, socket_connect_timeout=3) as client:
        client.ping()
    return "reachable"


def _registered(worker: str | None) -> str:
    """What fleet.workers says: of this worker, or of any."""
    from infra.postgres import connect
    from infra.settings import get_settings
    from infra.sql import query

    with connect(get_settings().require_postgres(), "fleet-ready") as conn:
        rows = conn.execute(query("workers_seen"), {"worker": worker}).fetchall()
    if not rows:
        raise _NotReady(f"{worker or 'no worker'} has announced itself")
    name, age, draining = rows[0]
    if age > _SEEN:
        raise _NotReady(f"{name} was last seen {age:.0f} s ago")
    if draining:
        raise _NotReady(f"{name} takes no more turns: it is being drained")
    return f"{name} takes turns"
