"""All checks, in the order in which a person would look."""

from collections.abc import Iterator

from graphs.registry import Registry
from infra.errors import RegistryError
from infra.settings import Settings

from ..cli.leftbehind import incompatible_threads
from ..client import Fleet
from ..errors import ProducerError
from . import broker, database, machine, nodes, notifications, store, work
from .finding import Finding, note, ok, problem

#: Threads named in the deploy's finding.
SHOWN = 10


def checkup(settings: Settings, *, before_deploy: bool = False) -> Iterator[Finding]:
    """Every finding. before_deploy: this checkout is not deployed yet."""
    yield from machine.look()
    reached = False
    if settings.postgres_url:
        for finding in database.look(settings.postgres_url, before_deploy=before_deploy):
            reached = reached or finding.check == "migrations"
            yield finding
    else:
        yield problem(
            "postgres",
            "No address of Postgres is set.",
            "Run `fleet up` in this folder, or set FLEET_POSTGRES_URL.",
        )
    if settings.redis_url:
        yield from broker.look(settings.redis_url)
    else:
        yield problem(
            "broker",
            "No address of the broker is set.",
            "Run `fleet up` in this folder, or set FLEET_REDIS_URL.",
        )
    if settings.postgres_url and reached:
        yield from work.look(settings.postgres_url)
    yield from notifications.look(settings, reached)
    try:
        registry = Registry.load(settings.graphs_path)
    except RegistryError as exc:
        yield problem("graphs", exc.message, exc.hint)
        return
    yield from nodes.look(registry)
    if settings.postgres_url and reached:
        yield from store.look(settings.postgres_url, registry.store, before_deploy)
    if before_deploy and settings.postgres_url and reached:
        yield deploy(settings.postgres_url, registry)


def deploy(url: str, registry: Registry) -> Finding:
    """Threads that this checkout's workers could not go on with."""
    try:
        with Fleet(url) as fleet:
            found = incompatible_threads(fleet, registry)
    except ProducerError as exc:
        return note("deploy", f"Threads could not be looked at: {exc.message}", exc.hint)
    if not found:
        return ok("deploy", "Every open thread stands where this checkout can go on with it.")
    told = "; ".join(f"{t['thread_id']}: {t['reason']}" for t in found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return problem(
        "deploy",
        f"Open threads that would become incompatible: {len(found)}. {told}{more}.",
        "Keep those nodes until the threads are past them, or move them on with `fleet amend`.",
        threads=found,
    )
