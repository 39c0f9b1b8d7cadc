"""The heartbeat file: what a worker writes while it is well, and what a probe makes of it."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

#: Seconds between two writes.
INTERVAL = 5.0
#: Seconds after which the worker is taken to be dead or hung.
STALE = 60.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One write. ``age``: seconds since, by the file's own time."""

    worker: str
    pid: int
    age: float

    @property
    def alive(self) -> bool:
        return self.age <= STALE


def write(path: Path, worker: str) -> None:
    """Write the file anew, whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps({"worker": worker, "pid": os.getpid()}))
    new.replace(path)


def read(path: Path) -> Heartbeat | None:
    """The last write; None where there is no such file, or none of ours."""
    try:
        facts = json.loads(path.read_text())
        age = time.time() - path.stat().st_mtime
        return Heartbeat(str(facts["worker"]), int(facts["pid"]), max(age, 0.0))
    except (OSError, ValueError, TypeError, KeyError):
        return None
