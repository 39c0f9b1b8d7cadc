"""Whether somebody would be told of a question that nobody looks at."""

import contextlib
from collections.abc import Iterator

import psycopg

from infra.errors import FleetError
from infra.postgres import connect
from infra.settings import Settings
from infra.sql import query
from infra.webhooks import unreachable

from .finding import Finding, note, ok, warning

_CHECK = "notifications"


def look(settings: Settings, reached: bool) -> Iterator[Finding]:
    """All checks. reached: the database can be asked."""
    addresses = {
        "FLEET_WEBHOOK_URL": settings.webhook_url,
        "FLEET_CHAT_WEBHOOK_URL": settings.chat_webhook_url,
    }
    told = {name: url for name, url in addresses.items() if url is not None}
    if not told and not settings.notify_adapters.strip():
        said = "No channel is set: nobody is told of a question that no client looks at."
        yield ok(_CHECK, said)
        return
    for name, url in told.items():
        yield address(name, unreachable(url, private=settings.notify_private))
    if settings.public_url is None:
        yield warning(
            _CHECK,
            "Questions are sent out without a link.",
            "Set FLEET_PUBLIC_URL to the gateway's address.",
        )
    if reached:
        yield from untold(settings.require_postgres())


def address(name: str, problem: str | None) -> Finding:
    """The address, which may be a secret, is not shown."""
    if problem is None:
        return ok(_CHECK, f"{name} would be called.")
    return warning(_CHECK, f"{name} would not be called: {problem}.", f"Correct {name}.")


def untold(url: str) -> Iterator[Finding]:
    """Open questions that a channel was not told of for good."""
    try:
        with contextlib.closing(connect(url, "fleet-doctor")) as conn:
            found = conn.execute(query("untold_questions")).fetchall()
    except (FleetError, psycopg.Error) as exc:
        said = str(exc).strip().splitlines()[0].rstrip(".")
        yield note(_CHECK, f"Notifications could not be looked at: {said}.")
        return
    for channel, gone, given_up in found:
        yield warning(
            _CHECK,
            f"Open questions that channel {channel} was not told of: {gone} since its receiver "
            f"said 410 Gone, {given_up} after too many attempts.",
            f"See `fleet notifications`; then `fleet notifications --again {channel}`.",
            channel=channel,
            gone=gone,
            given_up=given_up,
        )
