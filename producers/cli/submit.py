"""`fleet submit`: start the thread of a key, and wait for it if asked to; or many, from a file."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import complete
from .failures import note, tell
from .options import Json, MessageId, Tenant, read_json
from .output import print_facts, print_json

if TYPE_CHECKING:
    from ..client import Fleet
    from ..errors import WaitTimeout
    from ..status import Receipt

#: Statuses after --wait that a script should take for success.
_GOOD = ("done", "waiting")


class OnExisting(StrEnum):
    use_existing = "use_existing"
    reject = "reject"
    restart = "restart"


def register(app: typer.Typer) -> None:
    app.command()(submit)


Graph = Annotated[
    str | None,
    typer.Argument(
        help="A registered graph, for example refund.",
        autocompletion=complete.graphs,
        show_default=False,
    ),
]
Key = Annotated[
    str | None, typer.Argument(help="The business id, for example A1001.", show_default=False)
]
Input = Annotated[
    str | None, typer.Option("--input", metavar="JSON|@FILE|-", help="The input, a JSON object.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FILE.jsonl|-",
        help='Start many: a line is {"key": …, "input": {…}}, with a graph, message_id, priority '
        "or on_existing of its own if it has one. The same file can be sent again.",
    ),
]
Existing = Annotated[
    OnExisting, typer.Option("--on-existing", help="When the key has a thread already.")
]
Force = Annotated[
    bool,
    typer.Option(
        "--yes",
        help="With --on-existing restart: also where an effect is in doubt or was done by hand.",
    ),
]
Priority = Annotated[int, typer.Option("--priority", help="Higher is sooner.")]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="Wait until it has ended or asks something, and print what became of it.",
    ),
]


Context = Annotated[
    str | None,
    typer.Option("--context", metavar="JSON|@FILE|-", help="LangGraph's context of its runs."),
]
Config = Annotated[
    str | None,
    typer.Option("--config", metavar="JSON|@FILE|-", help="LangGraph's config of its runs."),
]


def submit(
    graph: Graph = None,
    key: Key = None,
    input: Input = None,
    from_file: From = None,
    message_id: MessageId = None,
    on_existing: Existing = OnExisting.use_existing,
    yes: Force = False,
    priority: Priority = 0,
    context: Context = None,
    config: Config = None,
    wait: Wait = None,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Hand a task to the fleet. Once this returns, it is kept."""
    options: dict[str, Any] = {
        "on_existing": on_existing.value,
        "force": yes,
        "priority": priority,
    }
    for name, text in (("context", context), ("config", config)):
        if text is not None:
            options[name] = read_json(text, f"--{name}")
    if from_file is not None:
        _refuse_with_from(key=key, input=input, message_id=message_id, wait=wait)
        _submit_lines(from_file, options | ({"graph": graph} if graph else {}), tenant, as_json)
        return
    if graph is None or key is None:
        missing = "graph" if graph is None else "key"
        raise typer.BadParameter(f"Missing argument '{missing}'; or give --from FILE.jsonl")
    payload = {} if input is None else read_json(input, "--input")
    from ..client import Fleet

    with Fleet(tenant=tenant) as fleet:
        receipt = fleet.submit(graph, key, payload, message_id=message_id, **options)
        if wait is None:
            report(receipt, as_json)
        elif not ended_well(fleet, receipt, wait, as_json):
            raise typer.Exit(1)


def _refuse_with_from(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            shown = name if name == "key" else f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"It does not go with {shown}", param_hint="--from")


def _submit_lines(source: str, defaults: dict[str, Any], tenant: str, as_json: bool) -> None:
    from ..client import Fleet
    from ..lines import opened
    from .lines import send

    with opened(source, defaults, "--from") as lines, Fleet(tenant=tenant) as fleet:
        done = send(fleet, lines)
    if as_json:
        print_json(done)
    else:
        print_facts(done)
    if done["paused"]:
        note(f"{done['paused']} are held: their graph is paused (`fleet resume GRAPH`).")
    if not done["published"]:
        note("No worker could be woken for all of them; they start when the broker is back.")


def ended_well(fleet: "Fleet", receipt: "Receipt", wait: float, as_json: bool) -> bool:
    """Wait, print what became of it, and whether a script should take that for success."""
    from .state import thread_in_full

    tell_unpublished(receipt)
    if receipt.outcome == "existing":
        note(
            f"{receipt.thread_id} was there before: this is its own state, and the input was "
            "not used. `--on-existing restart` starts it anew."
        )
    late = _late(fleet, receipt.thread_id, wait)
    thread = thread_in_full(receipt.thread_id)
    if late is not None and _late(fleet, receipt.thread_id, 0) is None:
        # It ended just then: what is shown must not be called late.
        late, thread = None, thread_in_full(receipt.thread_id)
    _print_final(receipt, thread, as_json)
    if late is not None:
        tell(late, as_json)
    return late is None and thread["status"] in _GOOD


def _late(fleet: "Fleet", thread_id: str, wait: float) -> "WaitTimeout | None":
    from ..errors import WaitTimeout

    try:
        fleet.wait(thread_id, wait)
    except WaitTimeout as error:
        return error
    return None


def _print_final(receipt: "Receipt", thread: dict[str, Any], as_json: bool) -> None:
    from .look import print_thread

    if as_json:
        facts = receipt.model_dump(mode="json")
        print_json({**facts, "status": thread["status"], "thread": thread})
    else:
        print_thread(thread)


def report(receipt: "Receipt", as_json: bool, **more: Any) -> None:
    """The receipt; a note when nobody could be woken."""
    facts = receipt.model_dump(mode="json") | more
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
    tell_unpublished(receipt)


def tell_unpublished(receipt: "Receipt") -> None:
    from ..messages import split_thread_id

    if receipt.paused:
        graph = split_thread_id(receipt.thread_id)[1]
        note(
            f"{receipt.thread_id} is accepted and held: graph {graph} is paused; it goes on with "
            f"`fleet resume {graph}`."
        )
    elif not receipt.published and receipt.outcome == "accepted":
        note(
            f"{receipt.thread_id} is accepted; no worker could be woken for it, so it starts "
            "when the broker is back."
        )
