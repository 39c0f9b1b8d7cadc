"""How long a refund stands still when its worker is killed, and when it is told to stop.

Two workers of one slot each; the refund is held at the shop, which has paid, so the kill
comes between "paid" and "recorded". The other worker is idle. Measured from the kill to
the next claim (a newer epoch on the thread), polled every 2 ms.
"""

import os
import statistics
import time
from typing import Any

import psutil

from infra.devservers import Child
from infra.sql import query
from producers.bench.rig import Rig, until

KINDS = ("pool child", "worker", "leader")


class Pair:
    """Two workers; `kill` one way, and the pair is whole again afterwards."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.workers = [rig.worker(1), rig.worker(1)]
        self._orders = 0

    def held(self, wanted: Child | None) -> tuple[str, Child]:
        """A refund held at the shop by ``wanted`` (or either), the other worker idle."""
        rig = self.rig
        rig.shop("POST", "/admin/faults", target="refunds", mode="hold_after")
        held: dict[str, Child] = {}
        for _ in self.workers:
            self._orders += 1
            order_id = f"K{self._orders}z"
            rig.shop("PUT", f"/admin/orders/{order_id}", user_id="u_42", amount="20.00")
            rig.fleet.submit("refund", order_id, {"user_id": "u_42"})
            until(lambda order_id=order_id: self._holds(order_id), 20, "a refund to be held")
            held[order_id] = self._owner(order_id)
            if wanted is None or held[order_id] is wanted:
                break
        rig.shop("DELETE", "/admin/faults")
        order_id = next(o for o, w in held.items() if wanted is None or w is wanted)
        for other in held.keys() - {order_id}:
            rig.shop("POST", "/admin/release", order_id=other)
            self.done(other)
        return order_id, held[order_id]

    def takeover(self, kind: str) -> float:
        """Seconds from the kill to the next claim."""
        leader = self._leader()
        wanted = None if kind == "pool child" else leader
        if kind == "worker":
            wanted = next(w for w in self.workers if w is not leader)
        order_id, worker = self.held(wanted)
        epoch = self._thread(order_id)[0]
        victim = psutil.Process(worker.pid).children()[0].pid
        begun = time.monotonic()
        if kind == "pool child":
            os.kill(victim, 9)
        else:
            worker.kill_group()
        until(lambda: self._thread(order_id)[0] > epoch, 30, "the takeover", interval=0.002)
        took = time.monotonic() - begun
        self.rig.shop("POST", "/admin/release")
        self.done(order_id)
        if kind != "pool child":
            worker.wait(5)
            self.workers[self.workers.index(worker)] = self.rig.worker(1)
        return took

    def sigterm(self) -> dict[str, Any]:
        """SIGTERM in the middle of a node: from the node's end to the free slot, and crashes."""
        order_id, worker = self.held(None)
        epoch = self._thread(order_id)[0]
        worker.terminate()
        until(lambda: self._stops(worker), 10, "the worker to hear of SIGTERM")
        begun = time.monotonic()
        self.rig.shop("POST", "/admin/release")
        until(
            lambda: (t := self._thread(order_id))[0] > epoch or t[2] is None,
            30,
            "the slot to be free",
            interval=0.002,
        )
        took = time.monotonic() - begun
        self.done(order_id)
        worker.wait(30)
        self.workers[self.workers.index(worker)] = self.rig.worker(1)
        crashes = self.rig.value("bench_crashes", thread_id=f"refund:{order_id}")
        return {"slot_free_s": took, "crashes": int(crashes)}

    def done(self, order_id: str) -> None:
        """Wait for the order's end."""
        until(lambda: self._thread(order_id)[1] == "done", 30, f"order {order_id} to be done")

    def _holds(self, order_id: str) -> bool:
        found = self.rig.shop("GET", "/admin/held")["held"]
        return any(h["order_id"] == order_id for h in found)

    def _thread(self, order_id: str) -> tuple[int, str, str | None]:
        args = {"thread_id": f"refund:{order_id}"}
        row = self.rig.conn.execute(query("bench_thread"), args).fetchone()
        assert row is not None
        return row[0], row[1], row[2]

    def _owner(self, order_id: str) -> Child:
        pid = int((self._thread(order_id)[2] or "").split(":")[1])
        parents = {p.pid for p in psutil.Process(pid).parents()}
        return next(w for w in self.workers if w.pid in parents)

    def _leader(self) -> Child:
        name = until(lambda: self.rig.value("sweep_leader"), 10, "a sweep leader")
        return next(w for w in self.workers if w.name in name)

    def _stops(self, worker: Child) -> bool:
        return bool(self.rig.value("bench_draining", worker=worker.name))


def measure(rig: Rig, kills: int, terms: int = 5) -> dict[str, Any]:
    """Kills of each kind, and the percentiles over all of them."""
    pair = Pair(rig)
    took = {kind: [pair.takeover(kind) for _ in range(kills)] for kind in KINDS}
    everything = sorted(t for times in took.values() for t in times)
    stops = [pair.sigterm() for _ in range(terms)]
    for worker in pair.workers:
        worker.terminate()
    return {
        "takeover_p50_s": percentile(everything, 50),
        "takeover_p99_s": percentile(everything, 99),
        "takeover": {
            kind: {"p50_s": percentile(sorted(t), 50), "max_s": max(t), "kills": len(t)}
            for kind, t in took.items()
        },
        "sigterm": {
            "slot_free_max_s": max(s["slot_free_s"] for s in stops),
            "slot_free_p50_s": statistics.median(s["slot_free_s"] for s in stops),
            "crashes": sum(s["crashes"] for s in stops),
        },
    }


def percentile(values: list[float], rank: int) -> float:
    """Nearest rank, of sorted values."""
    return values[max(0, -(-rank * len(values) // 100) - 1)]
