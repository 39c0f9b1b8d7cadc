"""The work itself: threads that wait for somebody, workers, and mail that nobody takes."""

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from infra.errors import FleetError
from infra.postgres import connect
from infra.sql import query

from ..client import Fleet
from ..operated import WorkerRow
from .finding import Finding, note, ok, problem, warning

#: Ids named per finding.
SHOWN = 10
#: Seconds that due mail may wait before the workers are called too few.
LATE = 60.0

_STUCK = {
    "failed": (
        "dead threads",
        "given up",
        "See `fleet show ID`; then `fleet retry ID`, `fleet amend ID …` or `fleet drop ID`.",
    ),
    "in_doubt": (
        "threads in doubt",
        "in doubt: a call was begun, and nobody knows whether it happened",
        "Ask the outside by the request id that `fleet show ID` names, then `fleet resolve ID …`.",
    ),
    "incompatible": (
        "incompatible threads",
        "standing at a node that their graph has no more",
        "Deploy that node again, or move them on with `fleet amend ID …`.",
    ),
}


def look(url: str) -> Iterator[Finding]:
    """All checks, or a note where the database can't be asked."""
    try:
        with contextlib.closing(connect(url, "fleet-doctor")) as conn:
            stuck = {s: (n, ids) for s, n, ids in _rows(conn, "stuck_threads", show=SHOWN)}
            due = _rows(conn, "due_mail")
            rejected = _rows(conn, "rejected_lately")[0][0]
        with Fleet(url) as fleet:
            workers = fleet.workers()
    except (FleetError, psycopg.Error) as exc:
        said = str(exc).strip().splitlines()[0].rstrip(".")
        yield note("work", f"Threads and workers could not be looked at: {said}.")
        return
    yield from (threads(status, *stuck.get(status, (0, []))) for status in _STUCK)
    yield alive(workers, sum(number for _, number, _ in due))
    yield mail(due, workers)
    yield foreign(rejected)


def _rows(conn: psycopg.Connection[Any], name: str, **args: Any) -> list[Any]:
    return conn.execute(query(name), args).fetchall()


def threads(status: str, number: int, ids: list[str]) -> Finding:
    """`number` threads of a status that somebody has to end; `ids` are some of them."""
    check, meaning, fix = _STUCK[status]
    if not number:
        return ok(check, "None.")
    more = f" and {number - len(ids)} more" if number > len(ids) else ""
    said = f"{number}, {meaning}: {', '.join(ids)}{more}."
    return problem(check, said, fix, number=number, threads=ids)


def alive(workers: list[WorkerRow], due: int) -> Finding:
    states = {w.worker: w.state for w in workers}
    ready = [name for name, state in states.items() if state == "ready"]
    silent = [name for name, state in states.items() if state == "silent"]
    if not ready:
        said = "No worker takes turns" + (f"; messages due: {due}." if due else ".")
        fix = "Start one: `celery -A workers worker`; `fleet workers` lists those that were."
        return problem("workers", said, fix, workers=states)
    slots = sum(w.slots for w in workers if w.state == "ready")
    said = f"Taking turns: {len(ready)}, slots: {slots}."
    if silent:
        return warning(
            "workers",
            f"{said} Silent: {', '.join(silent)}.",
            "They were killed, or can't reach Postgres; their turns went on elsewhere. A worker "
            "that is stopped in order takes its leave.",
            workers=states,
        )
    return ok("workers", said, workers=states)


def mail(due: list[tuple[str, int, float]], workers: list[WorkerRow]) -> Finding:
    """due: (queue, messages, seconds that the oldest has been due)."""
    served = {queue for w in workers if w.state == "ready" for queue in w.queues}
    data = {"due": [{"queue": q, "messages": n, "seconds": round(s, 1)} for q, n, s in due]}
    if unserved := [f"{queue} ({number})" for queue, number, _ in due if queue not in served]:
        return problem(
            "mail",
            f"Messages are due in queues that no worker takes: {', '.join(unserved)}.",
            "Start a worker for them: `celery -A workers worker -Q QUEUE`.",
            **data,
        )
    if late := [f"{queue} ({number}, {s:.0f} s)" for queue, number, s in due if s > LATE]:
        return warning(
            "mail",
            f"Messages wait for a free slot: {', '.join(late)}.",
            "Start more workers, or see what their slots are busy with: `fleet workers`.",
            **data,
        )
    return ok("mail", "No message waits for long.", **data)


def foreign(rejected: int) -> Finding:
    if not rejected:
        return ok("foreign messages", "None was set aside in the last day.")
    return warning(
        "foreign messages",
        f"Messages on the broker that were no wake-ups, in the last day: {rejected}.",
        "Find who sends them: fleet.rejected_wakeups has their text and the reason.",
        number=rejected,
    )
