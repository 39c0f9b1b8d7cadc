"""Real `celery worker` processes, started, killed and always ended.

They belong to the session's `Stack`, so none outlives the tests.
"""

import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.devservers import Child, Stack
from infra.owned import GuardLink
from tests.harness import ROOT, Database, clean_environment, eventually


class _WarmLink(GuardLink):
    program = f"{ROOT}/tests/warm_guard.py"


class WarmStack(Stack):
    """Its workers are forked from a guard that has loaded the packages."""

    link_type = _WarmLink


class Worker:
    """One `celery worker` process with its pool."""

    def __init__(self, name: str, child: Child) -> None:
        self.name = name
        self.child = child

    @property
    def pid(self) -> int:
        return self.child.pid

    def log(self) -> str:
        return self.child.log()

    def pool_pids(self) -> list[int]:
        """The prefork pool's processes."""
        return [int(pid) for pid in _children(self.pid)]

    def kill_pool_child(self, index: int = 0) -> int:
        """SIGKILL to one process of the pool; gives its pid."""
        pid = self.pool_pids()[index]
        os.kill(pid, 9)
        return pid

    def kill(self) -> None:
        """SIGKILL to the worker and its pool, as an out-of-memory kill of the group would."""
        self.child.kill_group()
        assert self.child.wait(5) is not None

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM, then wait for the exit code."""
        self.child.terminate()
        code = self.child.wait(timeout)
        assert code is not None, f"{self.name} did not stop within {timeout} s:\n{self.log()}"
        return code


class Workers:
    """Starts workers of one test, and ends what the test has left of them."""

    def __init__(
        self, stack: Stack, database: Database, folder: Path, settings: Mapping[str, Any]
    ) -> None:
        self._stack = stack
        self._database = database
        self._settings = dict(settings)
        self._folder = folder
        self._started: list[Worker] = []
        self.failpoint_log = folder / "failpoints.log"

    def start(
        self,
        *args: str,
        pool: str = "prefork",
        concurrency: int = 2,
        failpoints: str = "",
        once: bool = True,
        wait: bool = True,
        app: str = "workers",
        **settings: Any,
    ) -> Worker:
        """Start a worker; `args` go to Celery, `settings` are FLEET_ settings in small letters.

        `once`: each failpoint acts once over all workers of the test.
        """
        name = f"w{uuid.uuid4().hex[:8]}@test"
        argv = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", name]
        # Mingle waits a second for other workers' answers at each start.
        argv += ["-l", "INFO", "--without-mingle", "--pool", pool]
        argv += ["--concurrency", str(concurrency), *args]
        environment = clean_environment(
            **self._settings
            | {"failpoints": failpoints or None, "failpoint_log": self.failpoint_log}
            | {"failpoint_once": self._folder / "once" if once else None}
            | settings
        )
        log = self._folder / f"{name}.log"
        child = self._stack.spawn(name, argv, environment, log, cwd=self._folder)
        worker = Worker(name, child)
        self._started.append(worker)
        if wait:
            self.wait_ready(worker)
        return worker

    def wait_ready(self, worker: Worker, timeout: float = 30.0) -> None:
        """Until the worker consumes and its sweeper has announced it in `fleet.workers`."""

        def ready() -> bool:
            assert worker.child.poll() is None, f"{worker.name} ended:\n{worker.log()}"
            sql = "SELECT count(*) FROM fleet.workers WHERE worker = %s"
            return (
                f"{worker.name} ready" in worker.log()
                and self._database.value(sql, worker.name) == 1
            )

        try:
            eventually(ready, timeout, interval=0.05)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{worker.log()}") from None

    def hits(self, name: str | None = None) -> list[tuple[int, str, str]]:
        """(pid, failpoint, action) of each failpoint that acted so far."""
        if not self.failpoint_log.exists():
            return []
        lines = [line.split() for line in self.failpoint_log.read_text().splitlines()]
        return [(int(p), n, a) for p, n, a in lines if name is None or n == name]

    def __iter__(self) -> Iterator[Worker]:
        return iter(self._started)

    def close(self) -> None:
        for worker in self._started:
            worker.child.kill_group()
        for worker in self._started:
            worker.child.wait(5)


def _children(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task")
    if tasks.exists():
        return [c for t in tasks.iterdir() for c in (t / "children").read_text().split()]
    listed = os.popen(f"pgrep -P {pid}").read()
    return listed.split()
