"""`fleet amend`: a person has done a node's work by hand, and the thread is to know."""

import getpass
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .failures import note
from .options import Json, MessageId, Thread, read_json
from .output import print_facts, print_json
from .submit import tell_unpublished

if TYPE_CHECKING:
    from ..client import Fleet
    from ..status import Receipt, ThreadStatus

_PAUSE = 0.1


def register(app: typer.Typer) -> None:
    app.command()(amend)


def amend(
    thread: Thread,
    as_node: Annotated[
        str, typer.Option("--as-node", metavar="NODE", help="The node whose work was done.")
    ],
    values: Annotated[
        str,
        typer.Option("--values", metavar="JSON|@FILE|-", help="What it gives to the state."),
    ],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Who did it; you, if left out.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0, help="Until a worker has applied it."),
    ] = 30.0,
    message_id: MessageId = None,
    as_json: Json = False,
) -> None:
    """Say that a node's work was done by hand; the thread goes on after it."""
    given = read_json(values, "--values")
    from ..client import Fleet
    from ..payloads import checked_object

    _check(thread, as_node, checked_object(given, "values"))
    with Fleet() as fleet:
        receipt = fleet.amend(thread, as_node, given, by=by or _user(), message_id=message_id)
        tell_unpublished(receipt)
        status = _applied(fleet, receipt, wait) if wait else fleet.status(receipt.thread_id)
    facts = receipt.model_dump(mode="json") | {"status": status.status}
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
    if status.status == "failed":
        note(f"{receipt.thread_id} goes on with `fleet retry {receipt.thread_id}`.")


def _check(thread: str, as_node: str, values: Mapping[str, Any]) -> None:
    """What this checkout's graph has against it. Without the graph, its workers will tell."""
    from graphs.amendment import unfit
    from graphs.registry import Registry
    from infra.errors import RegistryError
    from infra.settings import get_settings

    from ..errors import InvalidPayload
    from ..messages import split_thread_id

    _, name, _ = split_thread_id(thread)
    try:
        graph = Registry.load(get_settings().graphs_path).get(name)
    except RegistryError as exc:
        note(f"The node and the values could not be checked here: {exc}")
        return
    if problem := unfit(graph, as_node, values):
        end = "" if problem.endswith("?") else "."
        raise InvalidPayload(f"{problem[0].upper()}{problem[1:]}{end}", "Nothing was sent.")


def _applied(fleet: "Fleet", receipt: "Receipt", wait: float) -> "ThreadStatus":
    """The thread once the amendment has met its end. Raises AmendmentRefused, WaitTimeout."""
    from ..errors import AmendmentRefused, WaitTimeout

    thread = receipt.thread_id
    deadline = time.monotonic() + wait
    while True:
        status = fleet.status(thread)
        message = next(m for m in status.messages if m.message_id == receipt.message_id)
        if message.status == "done":
            return status
        if message.status not in ("pending", "claimed"):
            raise AmendmentRefused(
                f"{thread} was not amended: {message.error or message.status}.",
                thread_id=thread,
                message_id=message.message_id,
            )
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"The amendment of {thread} is accepted, and no worker has applied it in "
                f"{wait:g} s.",
                thread_id=thread,
                status=status.status,
                timeout=wait,
            )
        time.sleep(_PAUSE)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return None
