"""What tests run against: real servers and a real shop; workers: tests.worker_processes.

All processes belong to the session's `Stack`, so none outlives the tests. Nothing here
sleeps for a fixed time: `eventually` polls with a deadline.
"""

import itertools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psycopg
import redis

from infra.devservers import Child, Stack
from workers.session import Session

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

    def session(self) -> Session:
        """As a slot has it."""
        return Session.connect(self.url, autocommit=True)

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
        # Copied as files: a log of each page would be written for nobody.
        sql = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"
        self._admin.execute(sql.encode())
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


def registered_graphs(folder: Path, database: Database, graphs: Mapping[str, str]) -> Path:
    """A graphs file of test graphs, `{name: "file.py:attribute"}`, known to the doors; its path."""
    places = {name: f"{ROOT}/tests/graphs/{place}" for name, place in graphs.items()}
    path = write_graphs(folder, **places)
    database.register(path)
    return path


def write_graphs(folder: Path, **graphs: str) -> Path:
    """A graphs file naming these graphs, `name="./file.py:attribute"`; gives its path."""
    path = folder / "langgraph.json"
    path.write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    return path
