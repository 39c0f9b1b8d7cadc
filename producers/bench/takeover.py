"""How long a refund stands still when its worker is killed.

Two workers of one slot each. A refund is held at the shop, which has paid: the kill comes
between "paid" and "recorded", and the other worker is idle. Measured from the moment before
SIGKILL is sent to the first look (every 2 ms) that sees a newer epoch on the thread, which
is the commit of another slot's claim.
"""

import os
import random
import signal
import time
from typing import Any

from infra.devservers import Child
from infra.sql import query
from producers.bench.counts import children
from producers.bench.pairs import Say
from producers.bench.percentiles import percentile
from producers.bench.rig import BenchFailed, Rig
from producers.local.processes import slot_pid
from producers.local.waiting import until

KINDS = ("pool_child", "worker", "leader")
_TRIES = 20
_LOOK = 0.002


class Workers:
    """Two workers of one slot, made whole again after each loss."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.workers = rig.workers(2, slots=1)

    def hold(self, wanted: Child | None) -> tuple[str, Child]:
        """A refund that ``wanted`` (or any) has under way and the shop holds; its thread and
        its worker."""
        for _ in range(_TRIES):
            (order_id,) = self.rig.orders(1, automatic=True)
            fault = {"target": "refunds", "mode": "hold_after", "order_id": order_id, "count": 1}
            self.rig.shop("POST", "/admin/faults", **fault)
            self.rig.fleet.submit("refund", order_id, {"user_id": "u_42"})
            until(lambda: self.rig.shop("GET", "/admin/held")["held"], 20, "a refund to be held")
            thread_id = f"refund:{order_id}"
            worker = self._worker_of(thread_id)
            if wanted is None or worker is wanted:
                return thread_id, worker
            self.finish(thread_id)
        raise BenchFailed(f"{wanted} got none of {_TRIES} refunds.")

    def finish(self, thread_id: str) -> None:
        """Let go of what the shop holds and wait for the thread's end."""
        self.rig.shop("POST", "/admin/release")
        until(lambda: self.look(thread_id)[1] == "done", 60, f"{thread_id} to be done")

    def look(self, thread_id: str) -> tuple[int, str, str | None]:
        """The thread's epoch, status and owner."""
        row = self.rig.conn.execute(query("bench_thread"), {"thread_id": thread_id}).fetchone()
        if row is None:
            raise BenchFailed(f"There is no thread {thread_id}.")
        return row[0], row[1], row[2]

    def slot(self, thread_id: str) -> int:
        """The process that has the thread."""
        if (owner := self.look(thread_id)[2]) is None:
            raise BenchFailed(f"{thread_id}, which should be held, has no owner.")
        return slot_pid(owner)

    def replace(self, worker: Child) -> None:
        """A new worker for one that has ended."""
        if worker.wait(20) is None:
            raise BenchFailed(f"{worker} did not end.")
        (new,) = self.rig.workers(1, slots=1)
        self.workers[self.workers.index(worker)] = new

    def leader(self) -> Child:
        """The worker that leads the sweep."""
        name = until(lambda: self.rig.value("sweep_leader"), 20, "a leader of the sweep")
        return next(w for w in self.workers if name == f"fleet-sweeper {w.name}")

    def _worker_of(self, thread_id: str) -> Child:
        slot = self.slot(thread_id)
        return next(w for w in self.workers if slot in children(w.pid))


def _kill(workers: Workers, kind: str) -> float:
    """One kill; seconds from it to the next claim."""
    leader = workers.leader()
    wanted = {"leader": leader, "pool_child": None}.get(
        kind, next(w for w in workers.workers if w is not leader)
    )
    thread_id, worker = workers.hold(wanted)
    epoch, slot = workers.look(thread_id)[0], workers.slot(thread_id)
    # Any moment between two ticks of the sweep is as likely as another.
    time.sleep(random.uniform(0.1, 0.6))
    begun = time.monotonic()
    if kind == "pool_child":
        os.kill(slot, signal.SIGKILL)
    else:
        worker.kill_group()
    until(lambda: workers.look(thread_id)[0] > epoch, 60, "the takeover", interval=_LOOK)
    took = time.monotonic() - begun
    workers.finish(thread_id)
    if kind == "pool_child":
        until(lambda: set(children(worker.pid)) - {slot}, 20, "the pool to be whole again")
    else:
        workers.replace(worker)
    return took


def measure(workers: Workers, kills: int, say: Say) -> dict[str, Any]:
    """So many kills of each kind; percentiles over all and for each kind."""
    took: dict[str, list[float]] = {}
    for kind in KINDS:
        took[kind] = [_kill(workers, kind) for _ in range(kills)]
        say(f"{kind} killed {kills} times: longest takeover {max(took[kind]):.2f} s")
    workers.rig.check_books()
    everything = [t for times in took.values() for t in times]
    return {
        "takeover_p50_s": percentile(everything, 50),
        "takeover_p99_s": percentile(everything, 99),
        "takeover": {kind: summary(times) for kind, times in took.items()},
    }


def summary(times: list[float]) -> dict[str, Any]:
    """Seconds, and where they lie."""
    return {
        "count": len(times),
        "p50_s": percentile(times, 50),
        "p99_s": percentile(times, 99),
        "max_s": percentile(times, 100),
        "seconds": [round(t, 3) for t in times],
    }
