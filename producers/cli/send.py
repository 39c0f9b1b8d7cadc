"""`fleet send`: more input for a thread that exists, such as the next message of a chat."""

from typing import Annotated, Any

import typer

from . import complete
from .options import Json, MessageId, Tenant, read_json
from .submit import Config, Context, Wait, ended_well, report


def register(app: typer.Typer) -> None:
    app.command()(send)


def send(
    graph: Annotated[
        str,
        typer.Argument(
            help="Its graph, for example chat, or its id, chat:c42.",
            autocompletion=complete.graphs,
        ),
    ],
    key: Annotated[
        str | None,
        typer.Argument(help="The business id, for example c42.", show_default=False),
    ] = None,
    *,
    input: Annotated[
        str, typer.Option("--input", metavar="JSON|@FILE|-", help="The input, a JSON object.")
    ],
    message_id: MessageId = None,
    context: Context = None,
    config: Config = None,
    wait: Wait = None,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Send more input to a thread that exists, after the mail that it has.

    A thread that waits for an answer takes none: answer its question.
    """
    payload = read_json(input, "--input")
    options: dict[str, Any] = {
        name: read_json(text, f"--{name}")
        for name, text in (("context", context), ("config", config))
        if text is not None
    }
    from ..client import Fleet
    from ..errors import UnknownThread
    from ..names import check_graph, check_key, split_thread_id, thread_id
    from ..refusals import unknown_graph

    if key is None:
        tenant, graph, key = split_thread_id(_id_alone(graph, tenant))
    with Fleet(tenant=tenant) as fleet:
        thread = thread_id(check_graph(graph), check_key(key), tenant)
        try:
            receipt = fleet.send(thread, payload, message_id=message_id, **options)
        except UnknownThread:
            if graph not in (known := fleet.graphs()):
                raise unknown_graph(graph, known) from None
            raise
        if wait is None:
            report(receipt, as_json)
        elif not ended_well(fleet, receipt, wait, as_json):
            raise typer.Exit(1)


def _id_alone(thread: str, tenant: str) -> str:
    """The thread's id, where it stands in place of graph and key."""
    if ":" not in thread:
        raise typer.BadParameter("Missing argument 'key'")
    if tenant:
        raise typer.BadParameter("A thread's id names its tenant itself.", param_hint="--tenant")
    return thread
