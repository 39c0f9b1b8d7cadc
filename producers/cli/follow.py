"""`fleet watch`: what happens in a thread, as it happens."""

import asyncio
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..wording import words_of
from .options import Json, Thread
from .output import cell, plain, print_facts

if TYPE_CHECKING:
    from ..live import Event, EventId, Snapshot

#: Of a conversation, in a snapshot for people.
_NEWEST = 5
_LONGEST = 200


def register(app: typer.Typer) -> None:
    app.command()(watch)


def watch(
    thread: Thread,
    after: Annotated[
        str | None,
        typer.Option("--from", metavar="ID", help="Go on after this event, for example 41-3."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what happens in a thread as it happens, until Ctrl-C. First how it stands."""
    from ..live import EventId
    from ..names import split_thread_id

    split_thread_id(thread)
    start = None if after is None else EventId.parse(after)
    try:
        asyncio.run(_follow(thread, start, as_json))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


async def _follow(thread: str, after: "EventId | None", as_json: bool) -> None:
    from infra.settings import get_settings

    from ..live import Hub, Lagging

    hub = Hub(get_settings())
    try:
        await hub.start()
        while True:
            async for item in hub.watch(thread, after):
                if isinstance(item, Lagging):
                    after = item.last
                else:
                    (_print_json if as_json else _print)(item)
                    sys.stdout.flush()
    finally:
        await hub.aclose()


def _print_json(item: "Event | Snapshot") -> None:
    from ..live import Snapshot

    found = item.as_dict()
    told = {"snapshot": found} if isinstance(item, Snapshot) else found
    typer.echo(json.dumps(told, default=plain))


def _print(item: "Event | Snapshot") -> None:
    from ..live import Snapshot

    if isinstance(item, Snapshot):
        _print_snapshot(item)
    else:
        typer.echo("\t".join((str(item.id), _time(item.at), item.type, _told(item.data))))


def _print_snapshot(found: "Snapshot") -> None:
    thread = found.thread
    print_facts(
        {
            "thread_id": thread.thread_id,
            "status": thread.status,
            "event": str(found.head),
            "last_error": thread.last_error,
        }
    )
    for question in thread.questions:
        print_facts({"question": question.question_id, "asks": words_of(question.payload, 2000)})
    if hidden := len(found.messages) - _NEWEST:
        typer.echo(f"({hidden} earlier messages)") if hidden > 0 else None
    for message in found.messages[-_NEWEST:]:
        typer.echo(f"{message['role']}: {cell(message['text'], _LONGEST)}")
    for begun in found.partial:
        typer.echo(f"assistant: {cell(begun['text'], _LONGEST)}...")
    for tool in found.running_tools:
        print_facts({"runs": f"{tool['name']} {cell(tool['args'], _LONGEST)}"})


def _time(at: str) -> str:
    try:
        return datetime.fromisoformat(at).astimezone().strftime("%H:%M:%S")
    except ValueError:
        return cell(at, 40)


def _told(data: Any) -> str:
    """An event's data in a line, without what nobody reads."""
    facts = {k: v for k, v in data.items() if v not in (None, "", [], {})}
    return " ".join(f"{name}={cell(value, _LONGEST)}" for name, value in facts.items())
