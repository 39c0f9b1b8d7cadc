"""The arena of the soak: servers, shop and workers of its own, which are to be hurt.

Workers sit on numbered seats; who dies is replaced, as a supervisor would do. The first
seat has a network of its own to Postgres and broker, which can fail.
"""

import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import psutil  # type: ignore[import-untyped]
import redis

from graphs.registry import Registry
from infra.devservers import Child, Server, Stack
from infra.errors import ServerFailed
from infra.migrate import migrate

from ..local.processes import READY_WITHIN, Launcher, Process, environment, worker_ready
from ..local.waiting import until
from .asking import Asking
from .proxy import Proxy

#: Kills come much faster than in life, where the third one puts a message aside.
_SETTINGS = {
    "max_crashes": 1000,
    "turn_timeout": 3,
    "hung_grace": 3,
    "sweep_interval": 0.1,
    "election_interval": 0.1,
    "redelivery_after": 0.5,
    "backoff_base": 0.1,
    "backoff_max": 2,
}


@dataclass
class Seat:
    """A worker's place. ``frozen``: it is stopped, and to come back."""

    number: int
    process: Process
    ready: bool = False
    frozen: bool = False
    #: Of those that sat here, the ones that ended although nobody had killed them.
    fell: list[str] = field(default_factory=list)

    @property
    def child(self) -> Child:
        return self.process.child


class Arena:
    """Use as a context manager. graphs_file: what the workers serve. seats: workers, of
    ``slots`` each; settings: FLEET_ settings in small letters."""

    def __init__(
        self, graphs_file: Path, *, seats: int = 3, slots: int = 2, **settings: Any
    ) -> None:
        self.stack = Stack(persistent=True, durable=False)
        self.slots = seats * slots
        self.seats: list[Seat] = []
        self.groups: list[int] = []
        self._graphs_file = graphs_file.absolute()
        self._wanted = seats
        self._slots = slots
        self._settings = _SETTINGS | settings

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
        postgres, broker = self.stack.postgres_url, self.stack.redis_url
        registry = Registry.load(self._graphs_file)
        migrate(postgres, registry.described(), registry.store.dims)
        self._kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
        plain = Launcher(self.stack, environment(self._kept), self.stack.data_dir)
        books = self.stack.data_dir / "books.jsonl"
        _, self.shop_url = plain.shop(0, books, "--no-fsync")
        self._http = undo.enter_context(httpx.Client(timeout=30))
        self.to_postgres = undo.enter_context(Proxy(postgres))
        self.to_broker = undo.enter_context(Proxy(broker))
        self.broker = redis.Redis.from_url(broker, socket_timeout=5)
        undo.callback(self.broker.close)
        self.ask = Asking(postgres)
        undo.callback(self.ask.close)
        self.servers: dict[str, Server] = {server.name: server for server in self.stack.servers}
        self.running: dict[str, Child] = {n: server.child for n, server in self.servers.items()}

    def _kill_all(self) -> None:
        for seat in self.seats:
            seat.child.kill_group()

    # Workers

    def fill(self) -> None:
        """A worker on each seat; returns when all serve."""
        self.seats = [Seat(n, self._worker(n)) for n in range(self._wanted)]
        self.wait_ready(self.seats)

    def wait_ready(self, seats: Sequence[Seat]) -> None:
        """Raises ServerFailed where one does not get there."""

        def ready() -> bool:
            self.tend()
            return all(seat.ready for seat in seats)

        until(ready, READY_WITHIN, "workers to be ready")

    def replace(self, seat: Seat) -> None:
        """Another worker for one that has been killed; does not wait for it."""
        seat.process, seat.ready, seat.frozen = self._worker(seat.number), False, False

    def tend(self) -> None:
        """See who serves by now, and replace who has ended by itself."""
        for seat in self.seats:
            if seat.frozen:
                continue
            try:
                seat.process.require_alive()
                seat.ready = seat.ready or worker_ready(seat.process)
            except ServerFailed as exc:
                # One that finds no Postgres at its start says so and ends.
                if seat.ready:
                    seat.fell.append(exc.message)
                self.replace(seat)

    def _worker(self, number: int) -> Process:
        through = number == 0
        env = environment(
            self._kept,
            postgres_url=self.to_postgres.url if through else self.stack.postgres_url,
            redis_url=self.to_broker.url if through else self.stack.redis_url,
            shop_url=self.shop_url,
            graphs_file=self._graphs_file,
            data_dir=self.stack.data_dir,
            **self._settings,
        )
        name = f"soak-{len(self.groups)}"
        launcher = Launcher(self.stack, env, self.stack.data_dir)
        process = launcher.worker(name, "--concurrency", str(self._slots))
        self.groups.append(process.child.pid)
        return process

    def targets(self) -> list[Seat]:
        """Seats whose workers serve and are not stopped."""
        self.tend()
        return [seat for seat in self.seats if seat.ready and not seat.frozen]

    def pool(self, seat: Seat) -> list[int]:
        """The processes of the worker's pool."""
        try:
            return [child.pid for child in psutil.Process(seat.child.pid).children()]
        except psutil.NoSuchProcess:
            return []

    # Servers

    def end(self, name: str, number: signal.Signals) -> None:
        """End the server of this name with the signal; returns when it is gone."""
        child = self.running[name]
        child.send(number)
        if child.wait(30) is None:
            child.kill()
            child.wait(10)

    def again(self, name: str) -> None:
        """Start it on its data; returns when it takes connections."""
        self.running[name] = self.servers[name].again()

    def shop(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        """One call of the shop's own, not of a graph."""
        response = self._http.request(method, self.shop_url + path, json=body or None)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer
