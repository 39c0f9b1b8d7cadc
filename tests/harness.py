"""What tests run against: real servers, a real shop and real Celery workers.

All processes belong to the session's `Stack`, so none outlives the tests. Nothing here
sleeps for a fixed time: `eventually` polls with a deadline.
"""

import itertools
import json
import os
import re
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
import redis

from infra.devservers import Child, Stack

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent


def eventually(fn: Callable[[], T], timeout: float = 10.0, interval: float = 0.02) -> T:
    """The first truthy result of `fn`; AssertionErrors count as not yet.

    At the deadline the last AssertionError is raised, or one naming the last result.
    """
    deadline = time.monotonic() + timeout
    while True:
        problem: AssertionError | None = None
        result: T | None = None
        try:
            if result := fn():
                return result
        except AssertionError as exc:
            problem = exc
        if time.monotonic() > deadline:
            raise problem or AssertionError(f"still {result!r} after {timeout} s")
        time.sleep(interval)


def clean_environment(**settings: Any) -> dict[str, str]:
    """This process's environment with exactly these FLEET_ settings: names without prefix."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
    environment["PYTHONPATH"] = str(ROOT)
    for name, value in settings.items():
        if value is not None:
            environment[f"FLEET_{name.upper()}"] = str(value)
    return environment


class Database:
    """One test's own database."""

    def __init__(self, url: str) -> None:
        self.url = url

    def connect(self, **kwargs: Any) -> psycopg.Connection[Any]:
        """A session in autocommit mode."""
        return psycopg.connect(self.url, autocommit=True, **kwargs)

    def fetch(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        """Rows of one statement, on a session of its own."""
        with self.connect() as conn:
            cursor = conn.execute(sql, args)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def value(self, sql: str, *args: Any) -> Any:
        """The first column of the first row; None where there is none."""
        rows = self.fetch(sql, *args)
        return rows[0][0] if rows else None

    def register(self, graphs_file: Path) -> None:
        """Make the graphs of another graphs file known to the doors."""
        from graphs.registry import Registry
        from infra.migrate import register_graphs

        with self.connect() as conn:
            register_graphs(conn, Registry.load(graphs_file).described())


class Databases:
    """Makes databases by cloning a migrated template."""

    def __init__(self, server_url: str, migrate: Callable[[str], object]) -> None:
        self._base = server_url.rpartition("/")[0]
        self._admin = psycopg.connect(server_url, autocommit=True)
        self._numbers = itertools.count(1)
        self._admin.execute("CREATE DATABASE template_fleet")
        migrate(f"{self._base}/template_fleet")

    def create(self, *, migrated: bool = True) -> Database:
        name = f"test_{next(self._numbers)}"
        template = "template_fleet" if migrated else "template0"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}".encode())
        return Database(f"{self._base}/{name}")

    def drop(self, database: Database) -> None:
        name = database.url.rpartition("/")[2]
        self._admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())

    def close(self) -> None:
        self._admin.close()


@dataclass(frozen=True)
class Broker:
    """One test's own Redis database."""

    url: str
    client: "redis.Redis[Any]"


class Shop:
    """The dev shop as a process, and its books."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        self._stack = stack
        self._books = folder / "books.jsonl"
        self._client = httpx.Client(timeout=10)
        self._numbers = itertools.count(int(time.time()) % 100_000 * 10_000)
        self._port = 0
        self._child: Child | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, on the port of last time, and wait until it listens."""
        argv = [sys.executable, "-m", "infra.shop", "--port", str(self._port)]
        argv += ["--books", str(self._books), "--no-fsync"]
        child = self._child = self._stack.spawn("shop", argv, clean_environment())
        found = eventually(
            lambda: (
                re.search(r"listening on http://127\.0\.0\.1:(\d+)", child.log()) or child.poll()
            )
        )
        assert isinstance(found, re.Match), f"the shop did not start: {child.log()}"
        self._port = int(found[1])

    def kill(self) -> None:
        """SIGKILL; the books stay."""
        if self._child is not None:
            self._child.kill_group()
            assert self._child.wait(5) is not None
            self._child = None

    def reset(self) -> None:
        """Up, and without faults or held calls."""
        if self._child is None:
            self.start()
        self.call("DELETE", "/admin/faults")

    def new_order(self, amount: str | Decimal = "141.50", user_id: str = "u_42") -> str:
        """An order of its own for the test; gives its id."""
        order_id = f"T{next(self._numbers)}"
        self.call("PUT", f"/admin/orders/{order_id}", user_id=user_id, amount=str(amount))
        return order_id

    def fault(self, target: str, mode: str, **fields: Any) -> None:
        """See `infra.shop_faults`."""
        self.call("POST", "/admin/faults", target=target, mode=mode, **fields)

    def clear_faults(self) -> None:
        self.call("DELETE", "/admin/faults")

    def held(self, order_id: str | None = None) -> list[dict[str, Any]]:
        """Calls that have acted and whose reply is kept back, see the mode `hold_after`."""
        held = self.call("GET", "/admin/held")["held"]
        return [h for h in held if order_id is None or h["order_id"] == order_id]

    def release(self, order_id: str | None = None) -> None:
        self.call("POST", "/admin/release", **({"order_id": order_id} if order_id else {}))

    def books(self, order_id: str | None = None) -> dict[str, Any]:
        suffix = f"?order_id={order_id}" if order_id else ""
        return self.call("GET", f"/admin/books{suffix}")

    def refunds(self, order_id: str) -> int:
        """How often the order was refunded."""
        return len(self.books(order_id)["refunds"])

    def calls(self, target: str, order_id: str) -> int:
        """How often the target was called about the order."""
        return int(self.books(order_id)["calls"][target]["total"])

    def call(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        response = self._client.request(method, self.url + path, json=body if body else None)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def close(self) -> None:
        self.kill()
        self._client.close()


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
        **settings: Any,
    ) -> Worker:
        """Start a worker; `args` go to Celery, `settings` are FLEET_ settings in small letters.

        `once`: each failpoint acts once over all workers of the test.
        """
        name = f"w{uuid.uuid4().hex[:8]}@test"
        argv = [sys.executable, "-m", "celery", "-A", "workers", "worker", "-n", name]
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


def write_graphs(folder: Path, **graphs: str) -> Path:
    """A graphs file naming these graphs, `name="./file.py:attribute"`; gives its path."""
    path = folder / "langgraph.json"
    path.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    return path
