"""What a run used: CPU by kind of process, commits, and wake-ups published."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

from producers.bench.rig import Rig

#: Not counted: it stands for the outside, and both sides call it alike.
OUTSIDE = "shop"


@dataclass(frozen=True)
class Used:
    """CPU in seconds."""

    cpu: Mapping[str, float]
    commits: int
    wakeups: int


class Meter:
    """Reads once when made; `used` gives what has been used since.

    processes: pids by kind. Each counts with all processes below it, also those that have
    ended; this process is `client`, the servers and the shop are found by themselves.
    """

    def __init__(self, rig: Rig, **processes: Sequence[int]) -> None:
        self._rig = rig
        self._processes = {**processes, **_servers(rig), OUTSIDE: (rig.shop_process.pid,)}
        self._before = self._read()
        # After the look at all others, which is our own doing.
        self._own = time.process_time()

    def used(self) -> Used:
        client = time.process_time() - self._own
        now = self._read()
        cpu = {kind: now.cpu[kind] - self._before.cpu[kind] for kind in now.cpu}
        return Used(
            {"client": client, **cpu},
            now.commits - self._before.commits,
            now.wakeups - self._before.wakeups,
        )

    def _read(self) -> Used:
        return Used(
            {kind: cpu_seconds(pids) for kind, pids in self._processes.items()},
            self._rig.value("bench_transactions"),
            _pushed(self._rig),
        )


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of the processes and of all below them, ended ones included."""
    total = 0.0
    for pid in pids:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            # Those of children that have ended are zero where the system has none (macOS).
            total += times.user + times.system + times.children_user + times.children_system
    return total


def children(pid: int) -> list[int]:
    """The processes that it has started and that still run."""
    return [process.pid for process in psutil.Process(pid).children()]


def _servers(rig: Rig) -> dict[str, Sequence[int]]:
    found: dict[str, list[int]] = {"postgres": [], "broker": []}
    for process in psutil.Process(rig.stack.guard_pid).children():
        kind = "broker" if "valkey" in process.name() else process.name()
        if kind in found:
            found[kind].append(process.pid)
    return {kind: tuple(pids) for kind, pids in found.items()}


def _pushed(rig: Rig) -> int:
    """Messages put into queues since the broker started; a script's calls are counted too."""
    stats: Any = rig.broker.info("commandstats")
    return int(stats.get("cmdstat_lpush", {}).get("calls", 0))
