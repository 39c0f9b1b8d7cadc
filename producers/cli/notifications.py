"""`fleet notifications`: questions that were sent out because nobody looked at them."""

from enum import StrEnum
from typing import Annotated

import typer

from .options import Json, Tenant
from .output import print_facts, print_json, print_table

_COLUMNS = ("thread_id", "channel", "status", "attempts", "sent_at", "next_at", "error")


class Status(StrEnum):
    waiting = "waiting"
    sent = "sent"
    gone = "gone"
    given_up = "given_up"
    dropped = "dropped"


def register(app: typer.Typer) -> None:
    app.command()(notifications)


def notifications(
    status: Annotated[Status | None, typer.Option("--status", help="Only of this status.")] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", help="Only of this channel: webhook, chat, …")
    ] = None,
    again: Annotated[
        str | None,
        typer.Option(
            "--again",
            metavar="CHANNEL",
            help="Send again what this channel's receiver said 410 Gone to, or was given up.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = (
        100
    ),
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """List the questions that were sent out because nobody looked at them, the latest first."""
    from ..client import Fleet

    with Fleet(tenant=tenant) as fleet:
        if again is not None:
            _again(fleet.notify_again(again), again, as_json)
            return
        found = fleet.notifications(status and status.value, channel, limit)
    if as_json:
        print_json({"notifications": [row.model_dump(mode="json") for row in found]})
    else:
        print_table("", _COLUMNS, [row.model_dump() for row in found])


def _again(count: int, channel: str, as_json: bool) -> None:
    told = {"channel": channel, "sent_again": count}
    if as_json:
        print_json(told)
    else:
        print_facts(told)
