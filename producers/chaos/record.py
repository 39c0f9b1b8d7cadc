"""The record of a chaos run: what its worker processes saw, one JSON line per fact.

Each line is on disk before what it tells of goes on, so that a kill loses none. Fields of
all facts: ``what``, ``at`` (seconds since the epoch), ``pid``, and where a turn runs also
``thread``, ``epoch``, ``seq``; further ones by ``what``:

    attempt     kind, crashes       a turn was begun (again)
    end         outcome             it ended in an orderly way
    node        node, place         a node was begun; place: its step and path, at each attempt
    asked       node, place, ids, payloads
    effect      name, policy, request_id, args, node, place       a declared effect was sent
    call        node, place, site, target, path     a call that no ledger knows
    refused     host, site, node    a connection that the run does not allow
    no_result   name                an effect whose result nobody gave
"""

import json
import os
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

Fact = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one message of one thread."""

    thread: str
    epoch: int
    seq: int


#: The attempt that the running code belongs to.
current_attempt: ContextVar[Attempt | None] = ContextVar("chaos_attempt", default=None)


class Recorder:
    """Appends facts to a file that all processes of the run share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, what: str, **fields: Any) -> None:
        """Append one fact and let it reach the disk."""
        attempt = current_attempt.get()
        about = asdict(attempt) if attempt else {}
        fact = {"what": what, "at": time.time(), "pid": os.getpid(), **about, **fields}
        line = json.dumps(fact, default=repr) + "\n"
        # Opened anew: a forked process must not share a file's buffer with its parent.
        fd = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            os.write(fd, line.encode())
            os.fsync(fd)
        finally:
            os.close(fd)


def read(path: Path) -> Iterator[Fact]:
    """The facts in the order in which they were written; none where nothing was."""
    if not path.exists():
        return
    # What stands behind the last line's end is still being written.
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)
