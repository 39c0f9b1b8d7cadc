"""`fleet up`: servers, shop and worker on one data folder, kept running until told to stop.

The addresses stand in the folder's stack file meanwhile, where `infra.settings` finds
them: commands in another terminal need no variable.
"""

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from infra import folders
from infra.datadir import STACK_FILE
from infra.devservers import Stack
from infra.errors import PortTaken, ServerFailed
from infra.ports import require_free
from infra.settings import Settings, get_settings

from .addresses import Addresses, ChosenPorts, broker_address, postgres_address
from .given import check_broker, check_postgres
from .keeping import Kept
from .processes import Launcher, Process, environment, wait_for_worker
from .signals import STOPPED

_LOOK_EVERY = 0.25
_PROBE_EVERY = 5.0
#: What a turn gets to end at a superstep; a longer one is taken over at the next start.
_WORKER_STOPS_WITHIN = 20.0
_LARGE_LOG = 10 << 20

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for. Ports: None, the one of last time or the default;
    0, any free one. concurrency 0: no worker."""

    ports: Mapping[str, int | None]
    concurrency: int
    pool: str = "prefork"
    flower: bool = False


def own_settings() -> Settings:
    """The settings without what a `fleet up` left: its addresses are not given ones.

    Raises DataFolderBusy while another one runs.
    """
    settings = get_settings()
    stack_file = settings.data_folder / STACK_FILE
    if stack_file.exists():
        lock = folders.lock_folder(settings.data_folder)
        try:
            stack_file.unlink(missing_ok=True)
        finally:
            os.close(lock)
        get_settings.cache_clear()
        settings = get_settings()
    return settings


class Host:
    """A context manager: everything is up inside of it, and nothing after it."""

    def __init__(self, settings: Settings, wishes: Wishes, say: Say) -> None:
        self._settings = settings
        self._wishes = wishes
        self._say = say
        self._ports = ChosenPorts(settings.data_folder, wishes.ports)
        self._kept: list[Kept] = []
        self._worker: Kept | None = None
        self._probed = 0.0
        self._silent: set[str] = set()
        self._stack = Stack(
            settings.data_folder,
            postgres_port=self._ports["postgres"],
            redis_port=self._ports["redis"],
            postgres_url=settings.postgres_url,
            redis_url=settings.redis_url,
        )

    def __enter__(self) -> Addresses:
        if self._settings.postgres_url:
            check_postgres(self._settings.postgres_url)
        if self._settings.redis_url:
            check_broker(self._settings.redis_url)
        try:
            self._stack.__enter__()
            try:
                return self._start()
            except BaseException:
                self._stack.close()
                raise
        except PortTaken as taken:
            raise self._ports.with_option(taken) from None

    def __exit__(self, *_: object) -> None:
        """The worker first, so that its turns end well; then all the rest."""
        try:
            if self._worker is not None and self._worker.process is not None:
                self._stop(self._worker.process)
        finally:
            self._stack.close()

    def serve(self, each_round: Callable[[], None]) -> None:
        """Keep everything running, for ever. Raises ServerFailed when a server of ours dies."""
        while True:
            now = time.monotonic()
            for kept in self._kept:
                kept.look(now)
            if now - self._probed > _PROBE_EVERY:
                self._probed = now
                self._probe()
            each_round()
            time.sleep(_LOOK_EVERY)

    # Starting

    def _start(self) -> Addresses:
        stack, wishes, folder = self._stack, self._wishes, self._stack.data_dir
        _set_large_logs_aside(folder / "logs", ("shop", "worker", "flower"))
        described = self._migrate()
        shop_url = self._settings.shop_url or self._start_shop()
        stack_file = stack.publish(shop_url)
        self._launcher = self._launching(shop_url)
        password_file = None
        if wishes.concurrency:
            self._start_worker(described)
        if wishes.flower:
            password_file = self._start_flower()
        logs = {k.name: k.process.log_path for k in self._kept if k.process is not None}
        return Addresses(
            data_dir=folder,
            stack_file=stack_file,
            postgres=postgres_address(stack.postgres_url),
            broker=broker_address(stack.redis_url),
            shop=shop_url,
            flower=f"http://127.0.0.1:{self._ports['flower']}" if wishes.flower else None,
            flower_password_file=password_file,
            graphs=[graph["graph"] for graph in described],
            logs=logs,
        )

    def _migrate(self) -> list[dict[str, Any]]:
        from graphs.registry import Registry
        from infra.migrate import migrate

        described = Registry.load(self._settings.graphs_path).described()
        if applied := migrate(self._stack.postgres_url, described):
            self._say(f"Migrated: {', '.join(applied)}.")
        return [dict(graph) for graph in described]

    def _start_shop(self) -> str:
        port, books = self._ports["shop"], self._stack.data_dir / "shop" / "books.jsonl"
        require_free("the shop", port)
        launcher = self._launching(None)
        self._kept.append(self._keep("shop", lambda: launcher.shop(port, books)[0]))
        self._ports.remember("shop")
        return f"http://127.0.0.1:{port}"

    def _start_worker(self, described: list[dict[str, Any]]) -> None:
        wishes = self._wishes
        self._say(f"Starting a Celery worker with {wishes.concurrency} slots ({wishes.pool}).")
        options = ["--concurrency", str(wishes.concurrency), "--pool", wishes.pool]
        queues = sorted({self._settings.queue} | {str(graph["queue"]) for graph in described})
        options += ["-Q", ",".join(queues)] if len(queues) > 1 else []
        # Flower asks workers for events by itself, but only after their first turns.
        options += ["-E"] if wishes.flower else []
        self._worker = self._keep("worker", lambda: self._launcher.worker("worker", *options))
        self._kept.append(self._worker)
        assert self._worker.process is not None
        wait_for_worker(self._worker.process)

    def _start_flower(self) -> Path:
        port, path = self._ports["flower"], self._stack.data_dir / "flower-password"
        require_free("Flower", port)
        password = folders.password(path)
        self._kept.append(self._keep("flower", lambda: self._launcher.flower(port, password)))
        self._ports.remember("flower")
        return path

    def _keep(self, name: str, start: Callable[[], Process]) -> Kept:
        return Kept(name, start, self._say, time.monotonic())

    def _launching(self, shop_url: str | None) -> Launcher:
        urls = {"postgres_url": self._stack.postgres_url, "redis_url": self._stack.redis_url}
        env = environment(os.environ, **urls, shop_url=shop_url)
        given = self._settings.postgres_url or self._settings.redis_url
        return Launcher(self._stack, env, Path.cwd(), shared=bool(given))

    # Running and ending

    def _probe(self) -> None:
        """Servers of ours that do not listen any more; once may be a moment's trouble."""
        silent = set()
        for name, url, given in (
            ("Postgres", self._stack.postgres_url, self._settings.postgres_url),
            ("The broker", self._stack.redis_url, self._settings.redis_url),
        ):
            if not given and not _listens(url):
                silent.add(name)
        for name in silent & self._silent:
            raise ServerFailed(
                f"{name} has stopped by itself.",
                f"The data is kept; see {self._stack.data_dir / 'logs'}, then start again.",
            )
        self._silent = silent

    def _stop(self, worker: Process) -> None:
        try:
            worker.child.terminate()
            if worker.child.wait(_WORKER_STOPS_WITHIN) is not None:
                return
            self._say(
                "The worker is in the middle of a long step, which goes on at the next start."
            )
        except STOPPED:
            self._say("At once, then. What was being worked on goes on at the next start.")
        except ServerFailed:
            return
        worker.child.kill_group()


def _listens(url: str) -> bool:
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=2).close()
    except OSError:
        return False
    return True


def _set_large_logs_aside(logs: Path, names: Iterable[str]) -> None:
    for path in (logs / f"{name}.log" for name in names):
        if path.exists() and path.stat().st_size > _LARGE_LOG:
            path.replace(path.with_name(f"{path.name}.1"))


def default_concurrency() -> int:
    """One slot per core that we may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
