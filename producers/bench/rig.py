"""The rig of a benchmark: servers, shop and workers of its own, and what they used.

Postgres syncs to disk as in production. The shop stands for the outside: both sides of a
comparison use the same one, and its CPU is counted on neither.
"""

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx
import psutil
import redis

from graphs.registry import Registry
from infra.devservers import Child, Stack
from infra.errors import ServerFailed
from infra.migrate import migrate
from infra.postgres import connect
from infra.settings import get_settings
from infra.sql import query
from producers.client import Fleet

T = TypeVar("T")

#: Above the approval limit: each refund asks a person.
AMOUNT = "1500.00"


def until(fn: Callable[[], T], timeout: float, what: str, interval: float = 0.01) -> T:
    """The first truthy result of `fn`. Raises ServerFailed naming `what` at the deadline."""
    deadline = time.monotonic() + timeout
    while not (found := fn()):
        if time.monotonic() > deadline:
            raise ServerFailed(f"The benchmark waited {timeout:.0f} s for {what}.", "Run it again.")
        time.sleep(interval)
    return found


def cpu_seconds(*pids: int) -> float:
    """User and system time of the processes and all below them, ended ones included."""
    total = 0.0
    for pid in pids:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total


class Rig:
    """Use as a context manager; nothing it starts outlives it."""

    def __init__(self) -> None:
        self.stack = Stack(durable=True)
        self.http = httpx.Client(timeout=10)
        self.shop_url = ""
        self._number = 0

    def __enter__(self) -> Self:
        self.stack.__enter__()
        try:
            self._start()
        except BaseException:
            self.stack.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.http.close()
        self.stack.__exit__(*exc)

    def _start(self) -> None:
        graphs = Registry.load(get_settings().graphs_path).described()
        migrate(self.stack.postgres_url, graphs)
        books = self.stack.data_dir / "books.jsonl"
        argv = [sys.executable, "-m", "infra.shop", "--port", "0", "--books", str(books)]
        shop = self.spawn("shop", [*argv, "--no-fsync"])
        found = until(
            lambda: re.search(r"http://127\.0\.0\.1:\d+", shop.log()), 10, "the shop to start"
        )
        self.shop_url = found[0]
        self.conn = connect(self.stack.postgres_url, "fleet-bench")
        self.fleet = Fleet(self.stack.postgres_url, self.stack.redis_url)
        self.broker = redis.Redis.from_url(self.stack.redis_url, socket_timeout=5)

    def environment(self) -> dict[str, str]:
        """Of the rig's processes: this one's without its settings, and the rig's addresses."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
        root = str(Path(__file__).resolve().parents[2])
        return kept | {
            "PYTHONPATH": os.pathsep.join(filter(None, (root, kept.get("PYTHONPATH")))),
            "FLEET_POSTGRES_URL": self.stack.postgres_url,
            "FLEET_REDIS_URL": self.stack.redis_url,
            "FLEET_SHOP_URL": self.shop_url,
            "FLEET_GRAPHS_FILE": str(get_settings().graphs_path.resolve()),
        }

    def spawn(self, name: str, argv: list[str]) -> Child:
        """A process of the rig's."""
        return self.stack.spawn(name, argv, self.environment())

    def worker(self, concurrency: int, wait: bool = True) -> Child:
        """A Celery worker, ready to serve when this returns."""
        self._number += 1
        name = f"bench{self._number}@fleet"
        argv = [sys.executable, "-m", "celery", "-A", "workers", "worker", "-n", name]
        argv += ["--concurrency", str(concurrency), "-l", "WARNING", "--without-mingle"]
        child = self.spawn(name, argv)
        if wait:
            self.ready(name)
        return child

    def ready(self, name: str) -> None:
        """Wait until the worker of that name serves."""
        until(
            lambda: self.value("bench_ready_workers", names=[name]) == 1,
            30,
            f"worker {name} to be ready",
        )

    def value(self, name: str, **args: Any) -> Any:
        """First column of a named query's first row."""
        row = self.conn.execute(query(name), args).fetchone()
        return row[0] if row else None

    def orders(self, prefix: str, count: int) -> list[str]:
        """Make orders at the shop, each above the approval limit; their ids."""
        ids = [f"{prefix}{n}" for n in range(count)]
        for order_id in ids:
            self.shop("PUT", f"/admin/orders/{order_id}", user_id="u_42", amount=AMOUNT)
        return ids

    def shop(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """One call of the shop's own, not of a graph."""
        response = self.http.request(method, self.shop_url + path, json=body or None)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def server_pids(self) -> list[int]:
        """Postgres and broker: the guard's children that are no processes of ours."""
        return [
            p.pid
            for p in psutil.Process(self.stack.guard_pid).children()
            if any(part in p.name() for part in ("postgres", "valkey"))
        ]
