"""Throughput: whole refunds per second and CPU per refund, against plain LangGraph.

Pairs run one after the other on the same servers, fleet then plain, each with two
processes (slots) for the graphs: the machine drifts, adjacent runs compare.
"""

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from infra.sql import query
from producers.bench.rig import Rig, cpu_seconds, until

SLOTS = 2
#: Tasks that the producer hands over in one transaction.
_BATCH = 10
_LONGEST = 120.0


@dataclass(frozen=True)
class Run:
    """One run of one side. ``cpu_ms`` per refund, of all processes but the shop."""

    refunds_per_s: float
    cpu_ms: float
    commits: float = 0.0
    wakeups_per_turn: float = 0.0


def pairs(rig: Rig, count: int, orders: int) -> dict[str, Any]:
    """``count`` adjacent pairs of runs of ``orders`` refunds each, and their medians."""
    worker = rig.worker(SLOTS)
    runs: list[tuple[Run, Run]] = []
    _fleet_run(rig, worker.pid, "W", 40)
    for n in range(count):
        fleet = _fleet_run(rig, worker.pid, f"F{n}x", orders)
        runs.append((fleet, _plain_run(rig, f"P{n}x", orders)))
    worker.terminate()
    worker.wait(20)
    return {
        "ratio_to_plain_langgraph": statistics.median(
            f.refunds_per_s / p.refunds_per_s for f, p in runs
        ),
        "cpu_ratio": statistics.median(f.cpu_ms / p.cpu_ms for f, p in runs),
        "commits_per_refund": statistics.median(f.commits for f, _ in runs),
        "wakeups_per_turn": statistics.median(f.wakeups_per_turn for f, _ in runs),
        "pairs": [{"fleet": asdict(f), "plain": asdict(p)} for f, p in runs],
    }


def _fleet_run(rig: Rig, worker: int, prefix: str, count: int) -> Run:
    ids = rig.orders(prefix, count)
    pids = [worker, *rig.server_pids()]
    commits, pushed = rig.value("bench_transactions"), _pushes(rig)
    cpu, own, begun = cpu_seconds(*pids), time.process_time(), time.monotonic()
    _produce(rig, ids)
    _finish(rig, prefix, begun)
    took = time.monotonic() - begun
    used = cpu_seconds(*pids) - cpu + time.process_time() - own
    return Run(
        count / took,
        used / count * 1000,
        (rig.value("bench_transactions") - commits) / count,
        (_pushes(rig) - pushed) / (2 * count),
    )


def _produce(rig: Rig, ids: list[str]) -> None:
    """Submit in small batches, answering meanwhile, one by one, whatever is asked."""
    waiting, begun = list(reversed(ids)), time.monotonic()
    answered = 0
    while answered < len(ids):
        batch = [waiting.pop() for _ in range(min(_BATCH, len(waiting)))]
        rig.fleet.submit_many([("refund", order_id, {"user_id": "u_42"}) for order_id in batch])
        asked = _questions(rig)
        for thread_id, question_id in asked:
            rig.fleet.answer(thread_id, question_id, "approved")
        answered += len(asked)
        if not waiting and not asked:
            _require_time(begun)
            time.sleep(0.005)


def _questions(rig: Rig) -> list[tuple[str, str]]:
    return rig.conn.execute(query("bench_questions")).fetchall()


def _finish(rig: Rig, prefix: str, begun: float) -> None:
    while rig.value("bench_unfinished", keys=f"{prefix}%"):
        _require_time(begun)
        time.sleep(0.005)


def _require_time(begun: float) -> None:
    until(lambda: time.monotonic() - begun < _LONGEST, 0, "the refunds to end")


def _pushes(rig: Rig) -> int:
    """Messages put into queues since the broker started: Lua's calls are counted too."""
    stats: Any = rig.broker.info("commandstats")
    return int(stats.get("cmdstat_lpush", {}).get("calls", 0))


def _plain_run(rig: Rig, prefix: str, count: int) -> Run:
    share = count // SLOTS
    go = rig.stack.data_dir / f"{prefix}go"
    ready = [rig.stack.data_dir / f"{prefix}ready{n}" for n in range(SLOTS)]
    children = []
    for n in range(SLOTS):
        ids = rig.orders(f"{prefix}{n}y", share + 10)
        argv = [sys.executable, "-m", "producers.bench.plain", str(ready[n]), str(go), *ids]
        children.append(rig.spawn(f"plain {prefix}{n}", argv))
    until(lambda: all(path.exists() for path in ready), 60, "the plain side to warm up")
    servers = rig.server_pids()
    cpu = cpu_seconds(*servers)
    go.touch()
    for child in children:
        if child.wait(_LONGEST) != 0:
            until(lambda: False, 0, f"the plain side, which failed:\n{child.log()[-2000:]}")
    used = cpu_seconds(*servers) - cpu
    ended = [json.loads(child.log().strip().splitlines()[-1]) for child in children]
    took = max(e["ended"] for e in ended) - min(e["begun"] for e in ended)
    done = sum(e["refunds"] for e in ended)
    return Run(done / took, (used + sum(e["cpu"] for e in ended)) / done * 1000)
