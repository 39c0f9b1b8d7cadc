"""`fleet up`: servers, shop and worker on one data folder, kept running until told to stop.

The addresses stand in the folder's stack file meanwhile, where `infra.settings` finds
them: commands in another terminal need no variable.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import folders
from infra.datadir import STACK_FILE
from infra.devservers import Server, Stack
from infra.errors import PortTaken, ServerFailed
from infra.settings import Settings, get_settings

from .addresses import Addresses, ChosenPorts, broker_address, postgres_address
from .given import check_broker, check_postgres
from .keeping import Kept
from .processes import Launcher, Process, environment, wait_for_gateway, wait_for_worker
from .signals import STOPPED

_LOOK_EVERY = 0.25
#: What a turn gets to end at a superstep; a longer one is taken over at the next start.
_WORKER_STOPS_WITHIN = 20.0
_LARGE_LOG = 10 << 20

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What the command line asks for. Ports: as of ChosenPorts. concurrency 0: no worker."""

    ports: Mapping[str, int | None]
    concurrency: int
    pool: str = "prefork"
    flower: bool = False
    gateway: bool = True


def own_settings() -> Settings:
    """The settings without what a `fleet up` left: its addresses are not given ones.

    Raises DataFolderBusy while another one runs.
    """
    folder = get_settings().data_folder
    folders.check_data_folder(folder)
    try:
        if (folder / "lock").exists():
            # Held for a moment by the guard of one that was killed, with the ports.
            lock = folders.lock_folder(folder)
            try:
                (folder / STACK_FILE).unlink(missing_ok=True)
            finally:
                os.close(lock)
    except OSError as exc:
        raise folders.unusable(folder, exc) from exc
    get_settings.cache_clear()
    return get_settings()


class Host:
    """A context manager: everything is up inside of it, and nothing after it."""

    def __init__(self, settings: Settings, wishes: Wishes, say: Say) -> None:
        self._settings = settings
        self._wishes = wishes
        self._say = say
        needed = {name for name in ("flower", "gateway") if getattr(wishes, name)}
        given = {"postgres": settings.postgres_url, "redis": settings.redis_url}
        given["shop"] = settings.shop_url
        needed |= {name for name, url in given.items() if not url}
        self._ports = ChosenPorts(settings.data_folder, wishes.ports, needed, say)
        self._kept: list[Kept] = []
        self._worker: Kept | None = None
        self._broken: dict[str, str] = {}
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
        """Keep everything running, for ever. Raises ServerFailed where that can't be done."""
        while True:
            for kept in self._kept:
                kept.look(time.monotonic())
            each_round()
            time.sleep(_LOOK_EVERY)

    # Starting

    def _start(self) -> Addresses:
        stack, wishes, folder = self._stack, self._wishes, self._stack.data_dir
        self._kept = [self._keep_server(server) for server in stack.servers]
        _set_large_logs_aside(folder / "logs", ("shop", "worker", "flower", "gateway"))
        described = self._migrate()
        shop_url = self._settings.shop_url or self._start_shop()
        stack_file = stack.publish(shop_url)
        self._launcher = self._launching(shop_url)
        password_file = gateway = None
        if wishes.gateway:
            gateway = self._start_gateway()
        if wishes.concurrency:
            self._start_worker(described)
        if wishes.flower:
            password_file = self._start_flower()
        if gateway is not None:
            wait_for_gateway(gateway)
        started = [k for k in self._kept if k.name not in {s.name for s in stack.servers}]
        logs = {k.name: k.process.log_path for k in started if k.process is not None}
        return Addresses(
            data_dir=folder,
            stack_file=stack_file,
            postgres=postgres_address(stack.postgres_url),
            broker=broker_address(stack.redis_url),
            shop=shop_url,
            gateway=self._gateway_url if wishes.gateway else None,
            flower=f"http://127.0.0.1:{self._ports['flower']}" if wishes.flower else None,
            flower_password_file=password_file,
            graphs=[graph["graph"] for graph in described],
            broken=self._broken,
            logs=logs,
        )

    def _migrate(self) -> list[dict[str, Any]]:
        from graphs.registry import Registry
        from infra.migrate import migrate

        self._say(which_graphs(self._settings))
        registry = Registry.load(self._settings.graphs_path)
        described = registry.described()
        self._broken = registry.broken()
        if applied := migrate(self._stack.postgres_url, described, registry.store.dims):
            self._say(f"Migrated: {', '.join(applied)}.")
        return [dict(graph) for graph in described]

    def _start_shop(self) -> str:
        port, books = self._ports["shop"], self._stack.data_dir / "shop" / "books.jsonl"
        launcher = self._launching(None)
        self._kept.append(self._keep(lambda: launcher.shop(port, books)[0]))
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
        self._worker = self._keep(lambda: self._launcher.worker("worker", *options))
        self._kept.append(self._worker)
        assert self._worker.process is not None
        wait_for_worker(self._worker.process)

    @property
    def _gateway_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['gateway']}"

    def _start_gateway(self) -> Process:
        """Open to this machine, unless the settings say that callers show who they are."""
        port, settings = self._ports["gateway"], self._settings
        auth = settings.gateway_auth if "gateway_auth" in settings.model_fields_set else "off"
        kept = self._keep(lambda: self._launcher.gateway(port, auth), needed=False)
        self._kept.append(kept)
        self._ports.remember("gateway")
        assert kept.process is not None
        return kept.process

    def _start_flower(self) -> Path:
        port, path = self._ports["flower"], self._stack.data_dir / "flower-password"
        password = folders.password(path, "Delete it and start again: a new one is made.")
        self._kept.append(self._keep(lambda: self._launcher.flower(port, password), needed=False))
        self._ports.remember("flower")
        return path

    def _keep(self, start: Callable[[], Process], *, needed: bool = True) -> Kept:
        process = start()
        name = process.child.name
        return Kept(name, process, start, self._say, time.monotonic(), needed=needed)

    def _keep_server(self, server: Server) -> Kept:
        def again() -> Process:
            written = server.log_path.stat().st_size
            return Process(server.again(), server.log_path, written)

        running = Process(server.child, server.log_path, 0)
        return Kept(server.name, running, again, self._say, time.monotonic())

    def _launching(self, shop_url: str | None) -> Launcher:
        urls = {"postgres_url": self._stack.postgres_url, "redis_url": self._stack.redis_url}
        # Links that the notifier sends lead to the gateway.
        public = self._settings.public_url or (self._gateway_url if self._wishes.gateway else None)
        env = environment(os.environ, **urls, shop_url=shop_url, public_url=public)
        given = self._settings.postgres_url or self._settings.redis_url
        return Launcher(self._stack, env, Path.cwd(), shared=bool(given))

    # Running and ending

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


def which_graphs(settings: Settings) -> str:
    """Where the graphs come from, in a sentence."""
    path = settings.graphs_path.absolute()
    if settings.graphs_file.exists() or "graphs_file" in settings.model_fields_set:
        return f"Serving the graphs of {path}."
    return (
        f"There is no {settings.graphs_file} in this folder: serving the graphs that come with "
        f"the fleet, of {path}."
    )


def _set_large_logs_aside(logs: Path, names: Iterable[str]) -> None:
    for path in (logs / f"{name}.log" for name in names):
        if path.exists() and path.stat().st_size > _LARGE_LOG:
            path.replace(path.with_name(f"{path.name}.1"))


def default_concurrency() -> int:
    """One slot per core that we may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
