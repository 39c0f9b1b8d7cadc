"""How soon a slot is free when its worker is told to stop in the middle of a superstep.

The superstep waits for the shop, which holds the refund. SIGTERM is sent; once the worker
has heard it the shop lets go, and the time runs from there to the first look (every 2 ms)
that finds another owner of the thread than this slot, or none. No attempt may count as a
crash.
"""

import time
from typing import Any

from producers.bench.pairs import Say
from producers.bench.rig import BenchFailed
from producers.bench.takeover import Workers, summary
from producers.local.processes import slot_pid
from producers.local.waiting import until

_LOOK = 0.002


def _stop(workers: Workers) -> tuple[float, int]:
    """One worker stopped: seconds to the free slot, and crashes counted."""
    rig = workers.rig
    thread_id, worker = workers.hold(None)
    slot = workers.slot(thread_id)
    worker.terminate()
    until(
        lambda: rig.value("bench_draining", worker=worker.name), 20, "the worker to hear of SIGTERM"
    )
    begun = time.monotonic()
    rig.shop("POST", "/admin/release")

    def free() -> bool:
        owner = workers.look(thread_id)[2]
        return owner is None or slot_pid(owner) != slot

    until(free, 60, "the slot to be free", interval=_LOOK)
    took = time.monotonic() - begun
    workers.finish(thread_id)
    workers.replace(worker)
    if worker.poll() != 0:
        raise BenchFailed(f"{worker} ended with {worker.poll()} after SIGTERM.")
    return took, int(rig.value("bench_crashes", thread_id=thread_id))


def measure(workers: Workers, times: int, say: Say) -> dict[str, Any]:
    """So many workers stopped."""
    stopped = [_stop(workers) for _ in range(times)]
    took, crashes = [t for t, _ in stopped], sum(c for _, c in stopped)
    say(f"stopped {times} times: longest to the free slot {max(took):.2f} s, {crashes} crashes")
    workers.rig.check_books()
    return {"sigterm": {**summary(took), "crashes": crashes}}
