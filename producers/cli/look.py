"""`fleet show` and `fleet threads`: what is recorded of threads."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..wording import words_of
from .failures import note
from .options import Json, Tenant, Thread
from .output import print_facts, print_json, print_table

if TYPE_CHECKING:
    from ..status import ThreadRow

_MESSAGES = ("seq", "kind", "status", "message_id", "crashes", "failures", "error")
_EFFECTS = ("name", "state", "attempts", "request_id", "result")
_GENERATION = ("generation",)
#: How a question of each kind is answered; any other takes a value.
_WAYS = {"approve": "--approve (or --reject)", "continue": "--approve"}
THREADS = ("thread_id", "status", "generation", "updated_at", "last_error")


class Status(StrEnum):
    idle = "idle"
    running = "running"
    waiting = "waiting"
    in_doubt = "in_doubt"
    failed = "failed"
    incompatible = "incompatible"
    done = "done"
    cancelled = "cancelled"


def register(app: typer.Typer) -> None:
    app.command()(show)
    app.command()(threads)


def show(
    thread: Thread,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Messages and effects of the generations before the last restart too."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a thread: status, state, question, messages and effects. JSON has all generations."""
    from .state import thread_in_full

    found = thread_in_full(thread)
    if as_json:
        print_json(found)
    else:
        print_thread(found, every=every)


def threads(
    status: Annotated[Status | None, typer.Option("--status", help="Only of this status.")] = None,
    graph: Annotated[str | None, typer.Option("--graph", help="Only of this graph.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="At most so many.")] = (
        100
    ),
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until Ctrl-C; in a pipe, a line a change.")
    ] = False,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.1, max=86400, help="Between two looks."),
    ] = 1.0,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """List threads, those that changed last first."""
    from ..client import Fleet

    with Fleet(tenant=tenant) as fleet:

        def look() -> list["ThreadRow"]:
            return fleet.threads(status=status and status.value, graph=graph, limit=limit)

        found = look()
        if graph is not None and not found:
            _refuse_unknown(graph, fleet.graphs())
        if watch:
            from .watch import watch as follow

            follow(look, every, as_json, THREADS)
    rows = [row.model_dump(mode="json" if as_json else "python") for row in found]
    if as_json:
        print_json({"threads": rows})
    else:
        print_table("", THREADS, rows)


def _refuse_unknown(graph: str, known: list[str]) -> None:
    """No threads is no answer about a graph that does not exist."""
    from ..refusals import unknown_graph

    if graph not in known:
        raise unknown_graph(graph, known)


def _next_steps(found: dict[str, Any]) -> list[str]:
    """What the thread waits for, as commands."""
    thread, questions = found["thread_id"], found["questions"]
    steps = []
    for question in questions:
        which = f" --question {question['question_id']}" if len(questions) > 1 else ""
        how = _WAYS.get(question["kind"]) or _value(question)
        steps.append(f"answer it: fleet answer {thread}{which} {how}")
    if found["status"] == "in_doubt":
        steps += [
            f"settle it: fleet resolve {thread} {effect['request_id']} --happened JSON "
            "(or --did-not-happen)"
            for effect in found["effects"]
            if effect["state"] == "intent" and effect["generation"] == found["generation"]
        ]
    if any(message["status"] == "dead" for message in found["messages"]):
        steps.append(f"go on with it: fleet retry {thread} (or fleet drop {thread})")
    return steps


def _value(question: dict[str, Any]) -> str:
    """Words, for a question that says that it takes them: text as JSON has its own quotes."""
    payload = question.get("payload")
    words = isinstance(payload, dict) and payload.get("text") is True
    return """--value '"in your words"'""" if words else "--value JSON"


def print_thread(found: dict[str, Any], *, every: bool = False) -> None:
    """For people; every: rows of earlier generations too."""
    facts = ("thread_id", "status", "generation", "epoch", "owner", "last_error", "updated_at")
    print_facts({name: found[name] for name in facts})
    for question in found["questions"]:
        print_facts(
            {
                "question": question["question_id"],
                "kind": question["kind"],
                "asks": words_of(question["payload"], 2000),
                "takes": question["response_schema"],
                "expires_at": question["expires_at"],
            }
        )
    for line in _next_steps(found):
        typer.echo(line)
    print_facts({"state": found["state"] or None})
    print_facts({name: found[name] for name in ("result", "saved", "unknown") if name in found})
    hidden = []
    for title, columns in (("messages", _MESSAGES), ("effects", _EFFECTS)):
        # A restart that waits is of the generation that it will begin.
        rows = [r for r in found[title] if every or r["generation"] >= found["generation"]]
        if left_out := len(found[title]) - len(rows):
            hidden.append(f"{left_out} {title if left_out > 1 else title[:-1]}")
        if rows:
            if not sys.stdout.isatty():
                typer.echo("")
            print_table(title, _GENERATION + columns if every else columns, rows)
    if hidden:
        note(f"{' and '.join(hidden)} of earlier generations: `--all` shows them too.")
