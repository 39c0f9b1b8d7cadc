"""`Stack`: Postgres, broker and any further processes, none of which outlives its owner.

    with Stack(data_dir) as stack:
        stack.postgres_url, stack.redis_url
        stack.spawn("shop", [sys.executable, "-m", "infra.shop", ...])

A guard process owns them all and ends them within a second even if this process is
killed. With `data_dir=None` everything lies in a temporary folder that is deleted at
the end. Ports that were chosen freely are kept from one start to the next where they
are still free, so that addresses once copied go on working.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from infra import folders
from infra.binaries import Binaries, find_binaries
from infra.datadir import STACK_FILE, default_data_dir
from infra.owned import Child, GuardLink
from infra.ports import Ports, free_port, require_free
from infra.postgres_server import DATABASE, PASSWORD_BACK, USER, PostgresServer
from infra.stackfile import write_stack_file
from infra.valkey_server import ValkeyServer

__all__ = ["Child", "Server", "Stack", "default_data_dir", "free_port"]


@dataclass(frozen=True)
class Server:
    """An embedded server that runs: `again` starts it anew, on its data and its port, when it
    has died, and gives the new process. It raises ServerFailed, PortTaken, DataDamaged."""

    name: str
    child: Child
    log_path: Path
    again: Callable[[], Child]


class Stack:
    """Embedded servers on one data folder; see the module's docstring.

    `durable=False` (tests) saves the syncs to disk: a power cut may lose data then,
    kill -9 of any process still loses none. Where `postgres_url` or `redis_url` is
    given that server is used and none is started. Raises DataFolderBusy, DataDamaged,
    PortTaken, ServerFailed or SettingsError on entering.
    """

    #: Starts the guard and speaks to it; tests have one of their own.
    link_type: ClassVar[type[GuardLink]] = GuardLink

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        persistent: bool | None = None,
        durable: bool = True,
        postgres_port: int = 0,
        redis_port: int = 0,
        postgres_url: str | None = None,
        redis_url: str | None = None,
    ) -> None:
        self.postgres_url = postgres_url or ""
        self.redis_url = redis_url or ""
        #: Those that were started here.
        self.servers: list[Server] = []
        self.persistent = data_dir is not None if persistent is None else persistent
        self.durable = durable
        self._given_dir = data_dir
        self._ports = {"postgres": postgres_port, "redis": redis_port}
        self._data_dir: Path | None = None
        self._link: GuardLink | None = None
        self._spawned = 0

    @property
    def data_dir(self) -> Path:
        """The data folder; servers' and children's logs are under `logs`."""
        if self._data_dir is None:
            raise RuntimeError("the stack is not started")
        return self._data_dir

    @property
    def guard_pid(self) -> int:
        """The process that owns all others."""
        return self._guard.pid

    @property
    def _guard(self) -> GuardLink:
        if self._link is None:
            raise RuntimeError("the stack is not started")
        return self._link

    def __enter__(self) -> Self:
        try:
            self._start()
        except OSError as exc:
            self._abandon()
            raise folders.unusable(self._data_dir or self._given_dir, exc) from exc
        except BaseException:
            self._abandon()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def spawn(
        self,
        name: str,
        argv: Sequence[str | Path],
        env: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        cwd: Path | None = None,
    ) -> Child:
        """Start a process that ends with this stack, in a process group of its own.

        Output goes to `log_path`, `logs/NAME-1.log` and so on when left out; the
        environment is ours when left out. Raises ServerFailed.
        """
        self._spawned += 1
        log_path = log_path or self.data_dir / "logs" / f"{name}-{self._spawned}.log"
        return self._guard.spawn(name, argv, log_path, env=env, cwd=cwd)

    def publish(self, shop_url: str | None = None) -> Path:
        """Leave the addresses where `infra.settings` finds them until the stack ends."""
        values = {"postgres_url": self.postgres_url, "redis_url": self.redis_url}
        if shop_url:
            values["shop_url"] = shop_url
        path = self.data_dir / STACK_FILE
        write_stack_file(path, values)
        return path

    def close(self, grace: float = 10.0) -> None:
        """End the children (SIGTERM, after `grace` seconds SIGKILL), then the servers."""
        link, self._link = self._link, None
        if link is not None:
            link.close(grace)
            if self._given_dir is None and self._data_dir is not None:
                # The guard's work, unless it was killed.
                shutil.rmtree(self._data_dir, ignore_errors=True)

    def _start(self) -> None:
        own = not (self.postgres_url and self.redis_url)
        binaries = find_binaries() if own else None
        others_enter = binaries is not None and binaries.user is not None
        if self._given_dir is None:
            self._data_dir = folders.temporary_folder(others_enter)
        else:
            self._data_dir = folders.make_data_folder(self._given_dir, others_enter)
        lock = folders.lock_folder(self._data_dir)
        try:
            logs = self._data_dir / "logs"
            logs.mkdir(mode=0o700, exist_ok=True)
            self._link = self.link_type(
                logs / "guard.log",
                lock_fd=lock,
                delete=None if self._given_dir else self._data_dir,
                unlink=self._data_dir / STACK_FILE,
            )
        finally:
            os.close(lock)
        if binaries is not None:
            self._start_servers(binaries)

    def _start_servers(self, binaries: Binaries) -> None:
        cluster = self.data_dir / "postgres" / "data"
        password = folders.password(
            self.data_dir / "password", PASSWORD_BACK, made_before=cluster.exists()
        )
        ports = Ports(self.data_dir / "ports.json")
        wanted = {} if self.postgres_url else {"Postgres": self._ports["postgres"]}
        wanted |= {} if self.redis_url else {"the broker": self._ports["redis"]}
        for name, port in wanted.items():
            require_free(name, port)
        if not self.postgres_url:
            self.postgres_url = self._start_postgres(binaries, password, ports)
        if not self.redis_url:
            self.redis_url = self._start_broker(binaries, password, ports)

    def _start_postgres(self, binaries: Binaries, password: str, ports: Ports) -> str:
        folder = folders.make_server_folder(self.data_dir / "postgres", binaries.user)
        log = self.data_dir / "logs" / "postgres.log"
        server = PostgresServer(folder, log, binaries, self._guard, durable=self.durable)
        server.prepare(password)
        port = server.start(self._ports["postgres"], ports.chooser("postgres"))
        ports.remember("postgres", port)
        self._keep("Postgres", server, log, lambda: server.start(port, ports.chooser("postgres")))
        base = f"postgresql://{USER}:{password}@127.0.0.1:{port}/"
        server.make_database(base + DATABASE, base + "postgres")
        return base + DATABASE

    def _start_broker(self, binaries: Binaries, password: str, ports: Ports) -> str:
        folder = folders.make_server_folder(self.data_dir / "valkey", binaries.user)
        log = self.data_dir / "logs" / "valkey.log"
        server = ValkeyServer(folder, log, binaries, self._guard, persistent=self.persistent)
        port = server.start(self._ports["redis"], password, ports.chooser("redis"))
        ports.remember("redis", port)
        self._keep(
            "broker", server, log, lambda: server.start(port, password, ports.chooser("redis"))
        )
        return f"redis://:{password}@127.0.0.1:{port}/0"

    def _keep(
        self,
        name: str,
        server: PostgresServer | ValkeyServer,
        log: Path,
        start: Callable[[], int],
    ) -> None:
        def again() -> Child:
            start()
            return running()

        def running() -> Child:
            assert server.child is not None
            return server.child

        self.servers.append(Server(name, running(), log, again))

    def _abandon(self) -> None:
        """End what a failed start has begun."""
        guarded = self._link is not None
        self.close(grace=1.0)
        if self._given_dir is None and self._data_dir is not None and not guarded:
            shutil.rmtree(self._data_dir, ignore_errors=True)
