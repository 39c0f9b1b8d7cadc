"""Metrics: their names, what they cost, and that the page in docs tells of all of them."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from infra.metrics import COUNTED, READ, Metric
from infra.settings import Settings
from tests.harness import ROOT
from workers.metrics import prepare

ALL = {**COUNTED, **READ}


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """(kind, labels) by name, of the table in docs/metrics.md."""
    rows = re.findall(
        r"^\| `(fleet_\w+)` \| (\w+) \|([^|]*)\|",
        (ROOT / "docs" / "metrics.md").read_text(),
        re.MULTILINE,
    )
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def test_the_documentation_lists_what_there_is() -> None:
    """Each metric with its type and labels, and nothing else."""
    assert documented() == {m.name: (m.kind, m.labels) for m in ALL.values()}


@pytest.mark.parametrize("metric", ALL.values(), ids=lambda m: m.name)
def test_names_follow_the_conventions(metric: Metric) -> None:
    """Counters end in _total and nothing else does; durations are in seconds, sizes in bytes."""
    assert re.fullmatch(r"fleet_[a-z]+(_[a-z]+)*", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert "duration" not in metric.name or metric.name.endswith("_seconds")
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert metric.help.endswith(".")


@pytest.mark.parametrize("metric", ALL.values(), ids=lambda m: m.name)
def test_no_label_holds_an_id(metric: Metric) -> None:
    """Only what has few values: a graph, a queue, an outcome."""
    few = {"graph", "queue", "outcome", "policy", "kind", "reason", "table", "status", "state"}
    few |= {"channel"}
    assert set(metric.labels) <= few


_FORKING = """
import json, os, sys, timeit
from pathlib import Path
import prometheus_client  # as a graph's module may have done
from infra import metrics

folder = Path(sys.argv[1])
metrics.turn("refund", "done", 0.01)
off = min(timeit.repeat(lambda: metrics.turn("refund", "done", 1), number=1000, repeat=5)) / 1000
metrics.enable(folder)
if os.fork() == 0:
    metrics.turn("refund", "done", 0.01)
    metrics.effect("resend", "done")
    os._exit(0)
os.wait()
metrics.turn("refund", "done", 0.02)
metrics.barrier("end", 0.001, 500)
metrics.tick(0), metrics.woken("orphan"), metrics.rejected(), metrics.pruned("messages", 3)
metrics.process_lost()
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry, str(folder))
samples = {
    " ".join([s.name, *sorted(s.labels.values())]): s.value
    for m in registry.collect() for s in m.samples
}
def turn():
    metrics.turn("refund", "done", 1)
    for kind in ("intent", "intent", "flush", "end"):
        metrics.barrier(kind, 0.001, 500)
    for _ in range(2):
        metrics.effect("resend", "done")
cost = min(timeit.repeat(turn, number=200, repeat=5)) / 200
print(json.dumps({"samples": samples, "off": off, "cost": cost}))
"""


def test_processes_are_added_up_and_counting_is_cheap(tmp_path: Path) -> None:
    """Forked processes count too; a turn's counting stays below 0.1 ms, and below 1 µs if off."""
    done = subprocess.run(
        [sys.executable, "-c", _FORKING, str(tmp_path)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    samples = found["samples"]
    assert samples["fleet_turn_duration_seconds_count done refund"] == 2
    assert samples["fleet_turn_duration_seconds_sum done refund"] == pytest.approx(0.03)
    assert samples["fleet_effects_total done resend"] == 1
    assert samples["fleet_barrier_bytes_total"] == 500
    assert samples["fleet_sweeper_wakeups_total orphan"] == 1
    assert samples["fleet_pruned_rows_total messages"] == 3
    assert samples["fleet_rejected_wakeups_total"] == 1
    assert found["off"] < 1e-6 and found["cost"] < 100e-6


def test_a_worker_removes_what_killed_ones_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that shows no metrics; what a living process or somebody else has stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    names = (f"{dead.pid}-a", f"{os.getpid()}-b", "1-c", "x-d", f"{2**70}-e")
    folders = [tmp_path / f"fleet-metrics-{name}" for name in names]
    for folder in folders:
        folder.mkdir()
        (folder / "counter_1.db").touch()
    prepare(Settings(metrics_port=None))
    assert {*tmp_path.iterdir()} == {*folders[1:]}
