"""The rig of a benchmark: servers, shop and workers of its own, gone with it.

Postgres and broker keep their data as under `fleet up` (fsync on, append-only file). The
shop stands for the outside: both sides of a comparison call the same one, and it does not
sync its books, so that the disk's time goes to what is measured.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
import redis

from graphs.registry import Registry
from infra import failpoints
from infra.devservers import Child, Stack
from infra.errors import FleetError
from infra.event_stream import AUDIENCE
from infra.migrate import migrate
from infra.postgres import connect
from infra.sql import query
from producers.client import Fleet
from producers.local.processes import Launcher, environment
from producers.local.waiting import until

_ROOT = Path(__file__).resolve().parents[2]


class BenchFailed(FleetError):
    """The benchmark could not be finished, or what it ran went wrong."""

    code: ClassVar[str] = "bench_failed"


class Rig:
    """Use as a context manager; nothing that it starts outlives it.

    graphs: a graphs file. settings: those of its processes, FLEET_ settings in small letters.
    """

    def __init__(self, graphs: Path = _ROOT / "langgraph.json", **settings: object) -> None:
        self._graphs = graphs
        self._settings = settings
        self.stack = Stack(durable=True, persistent=True)
        self.shop_url = ""
        self._numbers = 0
        self._started = 0
        self._spawned: list[Child] = []
        self._orders: list[str] = []

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(self.stack.close, grace=3.0)
            undo.callback(self._kill_all)
            self.stack.__enter__()
            self._start(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def _start(self, undo: contextlib.ExitStack) -> None:
        # Those of the environment are for others' fleets.
        failpoints.arm("")
        migrate(self.stack.postgres_url, Registry.load(self._graphs).described())
        self._start_outside(undo)
        self.conn = undo.enter_context(connect(self.stack.postgres_url, "fleet-bench"))
        self.fleet = undo.enter_context(Fleet(self.stack.postgres_url, self.stack.redis_url))
        self.broker = redis.Redis.from_url(self.stack.redis_url, socket_timeout=5)
        undo.callback(self.broker.close)

    def _start_outside(self, undo: contextlib.ExitStack) -> None:
        """What the graphs call."""
        self.http = undo.enter_context(httpx.Client(timeout=10))
        books = self.stack.data_dir / "books.jsonl"
        shop, self.shop_url = self._launcher().shop(0, books, "--no-fsync")
        self.shop_process = self._kept(shop.child)

    def _launcher(self) -> Launcher:
        """Default settings, in the rig's own folder, where no .env and no fleet.toml is."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
        settings = environment(
            kept,
            data_dir=self.stack.data_dir,
            graphs_file=self._graphs,
            postgres_url=self.stack.postgres_url,
            redis_url=self.stack.redis_url,
            shop_url=self.shop_url or None,
            **self._settings,
        )
        return Launcher(self.stack, settings, self.stack.data_dir)

    def have_readers(self) -> None:
        """From now on workers publish events, as where a gateway is about."""
        self.broker.set(AUDIENCE, 0)

    def spawn(self, name: str, argv: list[str]) -> Child:
        """Python with these arguments."""
        return self._kept(self._launcher().launch(name, [sys.executable, *argv]).child)

    def _kept(self, child: Child) -> Child:
        self._spawned.append(child)
        return child

    def _kill_all(self) -> None:
        """At the end: nothing of the rig is kept, so nothing is worth waiting for."""
        for child in self._spawned:
            child.kill_group()

    def workers(self, count: int, slots: int, *options: str) -> list[Child]:
        """Celery workers on the prefork pool, ready to serve when this returns."""
        started = [self.worker(slots, *options) for _ in range(count)]
        for child in started:
            until(partial(self.serves, child), 60, f"worker {child.name} to be ready", 0.05)
        return started

    def worker(self, slots: int, *options: str) -> Child:
        """One that begins; options go to Celery. See `serves`."""
        self._started += 1
        name = f"bench{self._started}@fleet"
        argv = ["-m", "celery", "-A", "workers", "worker", "-n", name, "-l", "WARNING"]
        argv += ["--concurrency", str(slots), "--without-mingle", *options]
        return self.spawn(name, argv)

    def serves(self, worker: Child) -> bool:
        """Whether it takes mail. Raises BenchFailed where it has ended instead."""
        if worker.poll() is not None:
            raise BenchFailed(f"A worker did not start: {worker.log().strip()[-500:]}")
        return bool(self.value("bench_ready_workers", worker=worker.name))

    @contextlib.contextmanager
    def paused(self, child: Child) -> Iterator[None]:
        """The process and its children stand still meanwhile, and use nothing."""
        child.send(signal.SIGSTOP, group=True)
        try:
            yield
        finally:
            child.send(signal.SIGCONT, group=True)

    def value(self, name: str, **args: Any) -> Any:
        """First column of a named query's first row."""
        row = self.conn.execute(query(name), args).fetchone()
        return row[0] if row else None

    def orders(self, count: int, *, automatic: bool = False) -> list[str]:
        """New orders, all above the approval limit, or all ``automatic``: below it."""
        first = self._numbers
        self._numbers += 2 * count
        # The shop knows every id of this form: even numbers cost more than 1000.
        found = [f"B{n + automatic:015d}" for n in range(first, self._numbers, 2)]
        self._orders += found
        return found

    def shop(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """One call of the shop's own, not of a graph."""
        response = self.http.request(method, self.shop_url + path, json=body or None)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def check_books(self) -> None:
        """Raise BenchFailed unless each order was refunded once, by the shop's own books."""
        refunds = self.shop("GET", "/admin/books")["orders"]
        wrong = {o: refunds.get(o, 0) for o in self._orders if refunds.get(o, 0) != 1}
        if wrong:
            order_id, times = next(iter(wrong.items()))
            raise BenchFailed(
                f"{len(wrong)} of {len(self._orders)} orders were not refunded exactly once "
                f"({order_id}: {times} times)."
            )
