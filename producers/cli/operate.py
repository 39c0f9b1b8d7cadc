"""What operators do: `fleet cancel`, `retry`, `drop`, `restart`, `pause`, `resume`, `queues`,
`workers` and `drain`."""

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import complete
from .consent import Yes, agree
from .failures import note
from .options import Json, MessageId, Thread, read_json
from .output import print_facts, print_json, print_table
from .several import Threads, each, is_one, print_done
from .submit import report

if TYPE_CHECKING:
    from ..client import Fleet
    from ..operated import Cancellation, Dropped, Hold, QueueRow, WorkerRow

_QUEUES = ("queue", "workers", "slots", "running", "due", "oldest", "waiting", "held", "paused")
_WORKERS = ("worker", "state", "pool", "slots", "busy", "queues", "seen_at", "runs")


def register(app: typer.Typer) -> None:
    for command in (cancel, retry, drop, restart, pause, resume, queues, workers, drain):
        app.command()(command)


Graph = Annotated[str, typer.Argument(help="A registered graph.", autocompletion=complete.graphs)]
Worker = Annotated[
    str, typer.Argument(help="Its name; see `fleet workers`.", autocompletion=complete.workers)
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait", metavar="SECONDS", min=0, help="Wait until the running turn has stopped."
    ),
]


def cancel(thread: Threads, wait: Wait = None, as_json: Json = False) -> None:
    """Call off all that is open of threads; a running turn stops at its next step."""
    if wait is not None and not is_one(thread):
        raise typer.BadParameter("It goes with one thread only.", param_hint="--wait")
    from ..client import Fleet

    with Fleet() as fleet:

        def call_off(thread_id: str) -> "Cancellation":
            done = fleet.cancel(thread_id)
            if done.outcome == "requested" and wait is not None:
                fleet.wait(done.thread_id, wait)
                done = fleet.cancel(thread_id)
            return done

        each(thread, call_off, _tell_cancelled, as_json)


def _tell_cancelled(done: "Cancellation") -> None:
    if done.outcome == "requested":
        note(
            f"A turn of {done.thread_id} runs; it finishes the call that it is making, if any, "
            "and stops at its next step. `--wait SECONDS` waits for that."
        )
    elif done.outcome == "finished":
        note(f"{done.thread_id} had ended ({done.status}) already; nothing was called off.")
    _tell_doubt(done)


def retry(
    thread: Threads,
    new_request: Annotated[
        bool,
        typer.Option(
            "--new-request", help="Make calls that failed for good anew, under new request ids."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Work on dead messages again; they go on where they stopped."""
    from ..client import Fleet

    with Fleet() as fleet:
        again = partial(fleet.retry, new_request=new_request)
        each(thread, again, lambda _: None, as_json)


def drop(thread: Threads, as_json: Json = False) -> None:
    """Give up threads' quarantined messages, so that later mail goes on."""
    from ..client import Fleet

    with Fleet() as fleet:
        each(thread, fleet.drop, _tell_doubt, as_json)


def restart(
    thread: Thread,
    input: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="JSON|@FILE|-",
            help="The input; that of the last start, if left out.",
        ),
    ] = None,
    yes: Yes = False,
    message_id: MessageId = None,
    as_json: Json = False,
) -> None:
    """Begin a thread anew, from a clean state; its open mail is dropped.

    Where an effect is in doubt, or a person has done a node's work by hand, it asks first.
    """
    given = None if input is None else read_json(input, "--input")
    from ..client import Fleet
    from ..operated import Repeated

    with Fleet() as fleet:
        before = fleet.latest_start(thread)
        made = dict.fromkeys(e["name"] for e in before["effects"] if e["state"] != "intent")
        anew = f"Effects of the run before are made anew: {', '.join(made)}." if made else ""
        if repeated := before["repeated"]:
            agree(f"{thread}: {Repeated.model_validate(repeated)}. {anew}", "Restart?", yes)
        elif anew:
            note(anew)
        receipt = fleet.restart(thread, given, message_id=message_id, force=bool(repeated))
    report(receipt, as_json)


def pause(graph: Graph, as_json: Json = False) -> None:
    """Hold a graph: its mail is kept, and no new turn begins."""
    from ..client import Fleet

    with Fleet() as fleet:
        _print_hold(fleet.pause(graph), as_json)


def resume(graph: Graph, as_json: Json = False) -> None:
    """Let a paused graph go on."""
    from ..client import Fleet

    with Fleet() as fleet:
        _print_hold(fleet.resume(graph), as_json)


def queues(as_json: Json = False) -> None:
    """List the queues: who serves them, what runs, what is due and since when."""
    from ..client import Fleet

    with Fleet() as fleet:
        found = fleet.queues()
    if as_json:
        print_json({"queues": [q.model_dump(mode="json") for q in found]})
        return
    print_table("", _QUEUES, [_queue(q) for q in found])


def _queue(found: "QueueRow") -> dict[str, Any]:
    oldest = found.oldest_due_for
    return found.model_dump() | {
        "oldest": "" if oldest is None else f"{oldest:.0f} s",
        "paused": " ".join(found.paused),
    }


def workers(as_json: Json = False) -> None:
    """List the workers, and what each runs now."""
    from ..client import Fleet

    with Fleet() as fleet:
        _print_workers(fleet.workers(), as_json)


def drain(
    worker: Worker,
    undo: Annotated[bool, typer.Option("--undo", help="Let it take turns again.")] = False,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Let a worker take no more turns; it stays up, and others go on with its threads."""
    if undo and wait is not None:
        raise typer.BadParameter("It does not go with --undo.", param_hint="--wait")
    from ..client import Fleet

    with Fleet() as fleet:
        found = fleet.drain(worker, undo=undo)
        if wait is not None:
            found = _drained(fleet, found, wait)
    if as_json:
        print_json(found.model_dump(mode="json") | {"state": found.state})
    else:
        print_facts(_worker(found))
    if undo and found.state != "silent":
        note(f"{worker} takes turns again within a second.")
    if found.state == "silent":
        note(f"{worker} has said nothing for {found.silent_for:.0f} s: it may be gone.")


def _drained(fleet: "Fleet", found: "WorkerRow", wait: float) -> "WorkerRow":
    from ..errors import WaitTimeout

    deadline = time.monotonic() + wait
    while found.state != "drained":
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"{found.worker} is {found.state} and runs {len(found.runs)} turn(s) after "
                f"{wait:g} s.",
                "They stop at their next step; see `fleet workers`.",
                worker=found.worker,
                status=found.state,
                timeout=wait,
            )
        time.sleep(0.1)
        found = next((w for w in fleet.workers() if w.worker == found.worker), found)
    return found


def _print_hold(hold: "Hold", as_json: bool) -> None:
    print_done(hold, as_json)
    if hold.paused and hold.running:
        note(f"{hold.running} turn(s) under way go on to their end.")


def _print_workers(found: Sequence["WorkerRow"], as_json: bool) -> None:
    if as_json:
        print_json({"workers": [w.model_dump(mode="json") | {"state": w.state} for w in found]})
        return
    print_table("", _WORKERS, [_worker(w) for w in found])


def _worker(found: "WorkerRow") -> dict[str, Any]:
    return {
        "worker": found.worker,
        "state": found.state,
        "pool": found.pool,
        "slots": found.slots,
        "busy": len(found.runs),
        "queues": " ".join(found.queues),
        "seen_at": found.seen_at,
        "runs": " ".join(run.thread_id for run in found.runs),
    }


def _tell_doubt(done: "Cancellation | Dropped") -> None:
    if done.in_doubt:
        named = ", ".join(map(str, done.in_doubt))
        note(
            f"{done.thread_id} leaves effects that may have happened: {named}. Nothing waits for "
            "them any more, and nothing needs to be recorded here; for your books, look them up "
            "outside."
        )
