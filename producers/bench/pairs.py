"""Throughput: whole refunds per second and CPU per refund, against plain LangGraph.

Runs alternate, fleet then plain, on the same servers with two processes for the graphs
each; the workers stand still during a plain run. The machine drifts, so that only the two
runs of an adjacent pair are compared, and the median of the pairs is given.
"""

import os
import select
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.devservers import Child
from producers.bench import load
from producers.bench.counts import OUTSIDE, Meter, Used
from producers.bench.plain import RECORD
from producers.bench.rig import BenchFailed, Rig

SLOTS = 2
Say = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One run of one side."""

    refunds: int
    seconds: float
    used: Used

    @property
    def rate(self) -> float:
        """Refunds per second."""
        return self.refunds / self.seconds

    @property
    def cpu_ms(self) -> Mapping[str, float]:
        """CPU per refund by kind of process, in milliseconds."""
        return {kind: 1000 * s / self.refunds for kind, s in self.used.cpu.items()}

    def cpu_total(self, outside: bool = False) -> float:
        """CPU per refund in milliseconds; without the shop's, or with it."""
        return sum(ms for kind, ms in self.cpu_ms.items() if outside or kind != OUTSIDE)

    @property
    def commits(self) -> float:
        """Per refund."""
        return self.used.commits / self.refunds

    @property
    def wakeups(self) -> float:
        """Per turn; a refund that is asked about takes two."""
        return self.used.wakeups / (2 * self.refunds)

    def row(self) -> dict[str, Any]:
        return {
            "refunds_per_s": round(self.rate, 1),
            "seconds": round(self.seconds, 3),
            "cpu_ms_per_refund": round(self.cpu_total(), 2),
            "cpu_ms": {kind: round(ms, 2) for kind, ms in self.cpu_ms.items()},
            "commits_per_refund": round(self.commits, 2),
            "wakeups_per_turn": round(self.wakeups, 4),
        }


class FleetSide:
    """A worker with two slots of the prefork pool, and the producer."""

    def __init__(self, rig: Rig, batch: int) -> None:
        self._batch = batch
        (self.worker,) = rig.workers(1, slots=SLOTS)
        self._rig = rig

    def run(self, count: int) -> Run:
        orders = self._rig.orders(count)
        meter = Meter(self._rig, workers=(self.worker.pid,))
        begun = time.monotonic()
        load.refund_all(self._rig, orders, self._batch, begun + _patience(count))
        took = time.monotonic() - begun
        return Run(count, took, meter.used())


class PlainSide:
    """Two processes of producers.bench.plain, fed through a pipe that they share."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        pipes = [rig.stack.data_dir / name for name in ("orders", "done")]
        for pipe in pipes:
            os.mkfifo(pipe, 0o600)
        # Both ways, so that opening waits for nobody; closed with this process.
        self._orders, self._done = (os.open(pipe, os.O_RDWR) for pipe in pipes)
        argv = ["-m", "producers.bench.plain", *map(str, pipes)]
        self._processes = [rig.spawn(f"plain{n}", argv) for n in range(SLOTS)]

    def run(self, count: int) -> Run:
        orders = self._rig.orders(count)
        meter = Meter(self._rig, graphs=[p.pid for p in self._processes])
        begun = time.monotonic()
        self._refund_all(orders, begun + _patience(count))
        took = time.monotonic() - begun
        return Run(count, took, meter.used())

    def _refund_all(self, orders: Sequence[str], deadline: float) -> None:
        # At most MOST_ORDERS records: a pipe holds them all.
        os.write(self._orders, "".join(orders).encode())
        left = RECORD * len(orders)
        while left:
            if select.select([self._done], [], [], 1.0)[0]:
                left -= len(os.read(self._done, left))
                continue
            for process in self._processes:
                if process.poll() is not None:
                    raise BenchFailed(f"The plain side failed: {_last_line(process)}")
            if time.monotonic() > deadline:
                raise BenchFailed("The plain side did not finish its refunds in time.")

    def close(self) -> None:
        for process in self._processes:
            process.kill_group()
        os.close(self._orders)
        os.close(self._done)


#: Of one run.
MOST_ORDERS = 4000


def measure(rig: Rig, count: int, orders: int, batch: int, say: Say) -> dict[str, Any]:
    """``count`` adjacent pairs of runs of ``orders`` refunds each, and their medians."""
    fleet, plain = FleetSide(rig, batch), PlainSide(rig)
    pairs: list[tuple[Run, Run]] = []
    try:
        for n in range(count + 1):
            # The first pair warms up.
            size = orders if n else min(orders, 100)
            one = fleet.run(size)
            with rig.paused(fleet.worker):
                other = plain.run(size)
            if n:
                pairs.append((one, other))
                say(f"pair {n}: fleet {one.rate:.0f}, plain {other.rate:.0f} refunds/s")
    finally:
        plain.close()
    _require_done(rig)
    return {
        "ratio_to_plain_langgraph": _median(f.rate / p.rate for f, p in pairs),
        "cpu_ratio": _median(f.cpu_total() / p.cpu_total() for f, p in pairs),
        **_commits([f for f, _ in pairs]),
        "throughput": {
            "orders_per_run": orders,
            "orders_per_submit": batch,
            "cpu_ratio_with_shop": _median(
                f.cpu_total(outside=True) / p.cpu_total(outside=True) for f, p in pairs
            ),
            "pairs": [
                {"ratio": round(f.rate / p.rate, 3), "fleet": f.row(), "plain": p.row()}
                for f, p in pairs
            ],
        },
    }


def measure_commits(rig: Rig, count: int, orders: int, batch: int, say: Say) -> dict[str, Any]:
    """Only the fleet's side, ``count`` runs: commits and wake-ups."""
    fleet = FleetSide(rig, batch)
    fleet.run(min(orders, 100))
    runs = []
    for n in range(count):
        runs.append(fleet.run(orders))
        say(f"run {n + 1}: {runs[-1].rate:.0f} refunds/s")
    _require_done(rig)
    rows = [run.row() for run in runs]
    details = {"orders_per_run": orders, "orders_per_submit": batch, "runs": rows}
    return {**_commits(runs), "commits": details}


def _commits(runs: Sequence[Run]) -> dict[str, float]:
    return {
        "commits_per_refund": _median(run.commits for run in runs),
        "wakeups_per_turn": _median((run.wakeups for run in runs), digits=4),
    }


def _median(values: Iterable[float], digits: int = 3) -> float:
    return round(statistics.median(values), digits)


def _require_done(rig: Rig) -> None:
    if left := rig.value("bench_not_done"):
        raise BenchFailed(f"{left} of the fleet's refunds did not end as done.")
    rig.check_books()


def _patience(count: int) -> float:
    """Seconds that a run may take: a hundredth of the usual speed."""
    return 60 + count


def _last_line(child: Child) -> str:
    return (child.log().strip().splitlines() or ["it said nothing"])[-1][:500]
