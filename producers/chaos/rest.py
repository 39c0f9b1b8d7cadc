"""A fleet at rest: nothing held, nothing open, nothing queued, nobody left over."""

import os
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]
import psycopg

from infra.sql import query

from .findings import Finding

if TYPE_CHECKING:
    from redis import Redis

#: Answers to Celery's remote control; nobody need have fetched them.
_REPLIES = ".pidbox"


def left(
    conn: psycopg.Connection[Any],
    broker: "Redis | None",
    groups: Collection[int] = (),
    abandoned: int = 0,
) -> list[Finding]:
    """What a fleet at rest should not have; see `producers.chaos.checker.check`."""
    return [
        *(Finding("left_lock", t, said) for t, said in conn.execute(query("check_locks"))),
        *_open_transactions(conn),
        *([] if broker is None else _queued(broker, abandoned)),
        *_orphans(groups),
    ]


def _open_transactions(conn: psycopg.Connection[Any]) -> Iterator[Finding]:
    for name, state in conn.execute(query("check_open_transactions")).fetchall():
        yield Finding("idle_in_transaction", "", f"{name} is {state}")


def _queued(broker: "Redis", abandoned: int) -> Iterator[Finding]:
    """Wake-ups in any queue, and those that a worker took and never settled."""
    for key in sorted(broker.scan_iter(count=1000)):
        name = key.decode() if isinstance(key, bytes) else str(key)
        kind = broker.type(key)
        waiting = broker.llen(key) if kind in (b"list", "list") and _REPLIES not in name else 0
        if name == "unacked":
            waiting = max(0, broker.hlen(key) - abandoned)
        if waiting:
            yield Finding("queue_not_empty", "", f"{name} holds {waiting}")


def _orphans(groups: Collection[int]) -> Iterator[Finding]:
    """Processes whose group's first one is gone."""
    wanted = {group for group in groups if not psutil.pid_exists(group)}
    for process in psutil.process_iter(["pid", "name", "status"]) if wanted else ():
        try:
            group = os.getpgid(process.pid)
        except ProcessLookupError:
            continue
        if group in wanted and process.info["status"] != psutil.STATUS_ZOMBIE:
            said = f"{process.info['name']} ({process.pid}) runs on after process {group}"
            yield Finding("orphan_process", "", said)
