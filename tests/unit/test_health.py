"""The heartbeat: what keeps it fresh, and what lets it go stale."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import heartbeat
from tests.harness import eventually
from workers import health
from workers.health import Heart


def consumer(turns: bool = True, connected: bool = True) -> Any:
    """Celery's consumer, as far as it is looked at: a loop that turns or does not."""
    return SimpleNamespace(
        hostname="w@test",
        connection=object() if connected else None,
        call_soon=(lambda callback: callback()) if turns else (lambda callback: None),
    )


def heart(path: Path, loop: Any, sweeper_age: float = 0.0) -> Heart:
    return Heart(path, loop, lambda: time.monotonic() - sweeper_age, interval=0.01)


def test_a_worker_that_is_well_keeps_its_file_fresh(tmp_path: Path) -> None:
    """The file names the worker, is replaced as a whole, and goes with the worker."""
    path = tmp_path / "run" / "heartbeat"
    beating = heart(path, consumer())
    beating.start()
    first = eventually(lambda: heartbeat.read(path))
    assert (first.worker, first.pid, first.alive) == ("w@test", os.getpid(), True)
    before = path.stat().st_ino
    eventually(lambda: path.stat().st_ino != before)
    beating.stop()
    assert [*path.parent.iterdir()] == []


@pytest.mark.parametrize(
    ("loop", "sweeper_age", "said"),
    [
        (consumer(turns=False), 0.0, "event loop"),
        (consumer(), health.HUNG + 1, "sweeper"),
    ],
)
def test_a_worker_that_hangs_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: Any, sweeper_age: float, said: str
) -> None:
    """The event loop and the sweeper both have to turn."""
    path = tmp_path / "heartbeat"
    hanging = heart(path, loop, sweeper_age)
    hanging._loop_at -= health.HUNG + 1
    loop.call_soon(hanging._loop_turns)
    hanging.beat()
    assert not path.exists() and said in str(hanging.problem())


@pytest.mark.parametrize("leaving", [True, False])
def test_an_outage_and_a_shutdown_are_no_reason_to_restart(tmp_path: Path, leaving: bool) -> None:
    """Celery's loop stands still while the broker is away, and while the last turns end."""
    path = tmp_path / "heartbeat"
    waiting = heart(path, consumer(turns=False, connected=leaving))
    waiting._loop_at -= health.HUNG + 1
    if leaving:
        waiting.leaving()
    waiting.beat()
    assert path.exists()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"worker": 1, "pid": "x"}', "\x00"])
def test_another_file_is_no_heartbeat(tmp_path: Path, content: str) -> None:
    """What is there but can't be read is as good as nothing."""
    (tmp_path / "heartbeat").write_text(content)
    assert heartbeat.read(tmp_path / "heartbeat") is None


def test_an_old_file_tells_of_a_dead_worker(tmp_path: Path) -> None:
    """By the file's time, which a probe in shell can look at as well."""
    heartbeat.write(tmp_path / "heartbeat", "w@test")
    os.utime(tmp_path / "heartbeat", (time.time() - 61,) * 2)
    found = heartbeat.read(tmp_path / "heartbeat")
    assert found is not None and found.age >= 60 and not found.alive


def test_a_file_that_can_not_be_written_costs_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and tried again."""
    heart(tmp_path, consumer()).beat()
    assert "can't be written" in caplog.text
