"""`fleet bench`, with the least there is of everything: what it prints, not how fast."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from producers.bench.percentiles import percentile
from tests.harness import clean_environment
from tests.warm_commands import FLEET

LEAST = ("--pairs", "1", "--orders", "4", "--kills", "1")
THROUGHPUT = ("ratio_to_plain_langgraph", "cpu_ratio", "commits_per_refund", "wakeups_per_turn")
TAKEOVER = ("takeover_p50_s", "takeover_p99_s")


def bench(folder: Path, *args: str, of: str = "refund") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FLEET, "bench", of, *args],
        env=clean_environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=110,
    )


def numbers(folder: Path, *args: str) -> dict[str, Any]:
    done = bench(folder, *LEAST, *args, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_all_of_it(tmp_path: Path) -> None:
    """Every key has a number, and each part its details."""
    found = numbers(tmp_path)
    assert found["cores"] >= 1
    assert all(found[key] > 0 for key in (*THROUGHPUT, *TAKEOVER))
    (pair,) = found["throughput"]["pairs"]
    assert pair["fleet"]["refunds_per_s"] > 0 and pair["plain"]["cpu_ms"]["graphs"] > 0
    assert {kind: part["count"] for kind, part in found["takeover"].items()} == {
        "pool_child": 1,
        "worker": 1,
        "leader": 1,
    }
    assert found["sigterm"]["count"] == 1


def test_one_part_of_it(tmp_path: Path) -> None:
    """What was not measured is null."""
    found = numbers(tmp_path, "--only", "commits", "--readers")
    assert found["readers"] is True
    assert found["commits_per_refund"] > 0 and found["wakeups_per_turn"] > 0
    assert [found[key] for key in ("ratio_to_plain_langgraph", "cpu_ratio", *TAKEOVER)] == [
        None
    ] * 4
    assert "takeover" not in found and "sigterm" not in found


def test_unknown_part(tmp_path: Path) -> None:
    """A wrong option is a mistake in usage, found before any server starts."""
    done = bench(tmp_path, "--only", "everything")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "--only" in done.stderr


def test_readers_of_what_publishes_nothing(tmp_path: Path) -> None:
    """Not ignored."""
    done = bench(tmp_path, "--only", "takeover", "--readers")
    assert done.returncode == 2 and done.stdout == ""
    assert "takeover is not about throughput" in done.stderr


LEAST_LIVE = ("--idle", "3", "--streams", "2", "--seconds", "5", "--kills", "2")


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("idle", ("rss_mb", "kept")),
        ("tokens", ("p50", "p99", "tokens_per_s")),
        ("reconnect", ("missed", "p50", "p99")),
        ("kills", ("kills", "turns")),
    ],
)
def test_a_part_of_live(part: str, keys: tuple[str, ...], tmp_path: Path) -> None:
    """A number for each key, and what else the machine did."""
    done = bench(tmp_path, *LEAST_LIVE, "--only", part, "--json", of="live")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert all(found[part][key] > 0 for key in keys)
    assert len(found[part]["load_average"]) == 2 and found.keys() == {"cores", part}


def test_live_for_people(tmp_path: Path) -> None:
    """A table: what was measured, here, and the goal."""
    done = bench(tmp_path, *LEAST_LIVE, "--only", "idle", of="live")
    assert done.returncode == 0, done.stderr
    head, memory, cpu, load = (line.split("\t") for line in done.stdout.splitlines())
    assert head == ["measure", "here", "goal"]
    assert memory[0] == "memory of a gateway with 3 idle sessions, MB" and memory[2] == "< 400"
    assert 10 < float(memory[1]) < 400 and float(cpu[1]) >= 0
    assert load[0].startswith("load average, idle") and len(load[1].split()) == 2


@pytest.mark.parametrize(
    ("values", "rank", "expected"),
    [([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0], 50, 1.0), ([float(n) for n in range(1, 61)], 99, 60)],
)
def test_percentile(values: list[float], rank: int, expected: float) -> None:
    """Nearest rank: a value that was measured, and with 60 of them the 99th is the longest."""
    assert percentile(values, rank) == expected
