"""`fleet fork`: a new thread that goes on from a checkpoint of another one."""

from typing import Annotated, Any

import typer

from .consent import Yes, agree
from .failures import note
from .options import Json, MessageId, Thread
from .submit import report


def register(app: typer.Typer) -> None:
    app.command()(fork)


def fork(
    thread: Thread,
    at: Annotated[
        str, typer.Option("--at", metavar="CHECKPOINT", help="Its id; see `fleet history`.")
    ],
    key: Annotated[str, typer.Option("--key", metavar="KEY", help="Of the new thread.")],
    yes: Yes = False,
    message_id: MessageId = None,
    as_json: Json = False,
) -> None:
    """Begin a new thread from a checkpoint of another; effects after it happen anew."""
    from ..client import Fleet
    from ..names import check_key, check_message_id
    from ..past.checkpoints import Place, snapshot
    from ..surroundings import addresses

    # Before anything is looked for.
    key = check_key(key)
    message_id = message_id if message_id is None else check_message_id(message_id)
    with Fleet() as fleet:
        found = snapshot(Place(fleet, addresses(None, None)[0], note), thread, at)
        _refuse_subgraph(found)
        _refuse_breakpoint(found)
        effects = fleet.effects_after(thread, at)
        names = ", ".join(dict.fromkeys(e["name"] for e in effects))
        warning = "Effects after that checkpoint happen anew in the new thread" + (
            f": {names}." if names else "."
        )
        agree(warning, "Fork?", yes)
        receipt = fleet.fork(thread, at, key, message_id=message_id)
    report(receipt, as_json)


def _refuse_subgraph(found: dict[str, Any]) -> None:
    from ..errors import ProducerError

    if found["subgraph"]:
        raise ProducerError(
            f"Checkpoint {found['checkpoint_id']} of {found['thread_id']} is one of its subgraph "
            f"{found['subgraph']}, whose steps begin no thread.",
            "Fork at a checkpoint of the graph itself; `fleet history` marks the others.",
        )


def _refuse_breakpoint(found: dict[str, Any]) -> None:
    """A static breakpoint would be passed unasked by the new thread."""
    from graphs.registry import Registry
    from infra.errors import RegistryError
    from infra.settings import get_settings

    from ..errors import ProducerError
    from ..messages import split_thread_id

    thread = found["thread_id"]
    try:
        graph = Registry.load(get_settings().graphs_path).get(split_thread_id(thread)[1]).graph
    except RegistryError:
        return
    for stops, nodes in (
        (graph.interrupt_before_nodes, found["next"]),
        (graph.interrupt_after_nodes, found["nodes"]),
    ):
        if found["next"] and nodes and (stops == "*" or set(nodes) & set(stops)):
            raise ProducerError(
                f"Checkpoint {found['checkpoint_id']} of {thread} is at a breakpoint, which the "
                "new thread would pass unasked.",
                "Fork at an earlier checkpoint.",
            )
