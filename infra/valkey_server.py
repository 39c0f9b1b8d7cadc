"""The embedded broker: Valkey on a loopback port, with a password.

Its settings go in a file that only the servers' user can read: the password would
stand in the list of processes otherwise.
"""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import redis

from infra.binaries import Binaries
from infra.errors import DataDamaged, PortTaken, ServerFailed
from infra.leftovers import end_leftover
from infra.owned import Child, GuardLink

# Tests take one database each.
DATABASES = 256
_READY_WITHIN = 60.0
# What it says of its file when it can't go on with it.
_DAMAGED = ("append only file", "AOF", "RDB", "loading DB")
_IN_USE = "Address already in use"


class ValkeyServer:
    """One broker with its files under `folder`, owned by the guard."""

    def __init__(
        self, folder: Path, log_path: Path, binaries: Binaries, link: GuardLink, *, persistent: bool
    ) -> None:
        self.folder = folder
        self.log_path = log_path
        self._config = folder / "valkey.conf"
        self._pid_file = folder / "valkey.pid"
        self._binaries = binaries
        self._link = link
        self._persistent = persistent
        #: The server, once it was started.
        self.child: Child | None = None

    def start(self, port: int, password: str, free_port: Callable[[], int]) -> int:
        """Start the broker and wait until it answers; gives its port.

        `port` 0 takes one from `free_port`. Raises PortTaken or ServerFailed.
        """
        end_leftover(self._pid_file, str(self._config), ("SIGTERM",))
        for _ in range(20):
            number = port or free_port()
            self._configure(number, password)
            written = self.log_path.stat().st_size if self.log_path.exists() else 0
            child = self._link.spawn(
                "valkey",
                [self._binaries.valkey, self._config],
                self.log_path,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                cwd=self.folder,
                user=self._binaries.user,
                server=True,
            )
            if self._ready(child, number, password):
                self.child = child
                return number
            said = self._said(written)
            if _IN_USE not in said:
                break
            if port:
                raise PortTaken("the broker", port)
        raise self._failed(said)

    def _said(self, start: int) -> str:
        with self.log_path.open("rb") as log:
            log.seek(start)
            return log.read().decode(errors="replace")

    def _failed(self, said: str) -> DataDamaged | ServerFailed:
        # A line is `pid:role date time mark text`; the mark of a warning is #.
        said = said.strip()
        lines = [line.partition(" # ")[2] for line in said.splitlines() if " # " in line]
        lines = [line.partition(": make a backup")[0].strip() for line in lines]
        file = next((line for line in lines if any(mark in line for mark in _DAMAGED)), None)
        if file is not None:
            return DataDamaged(
                self.folder / "appendonlydir",
                file.rstrip("."),
                "Move that folder away and start again: accepted work is in Postgres, and is "
                "woken from there.",
            )
        reason = (lines or said.split("\n"))[-1].strip().rstrip(".") or "it said nothing"
        return ServerFailed(
            f"The broker did not start: {reason}.", f"See {self.log_path} for more."
        )

    def _configure(self, port: int, password: str) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": port,
            "requirepass": password,
            "dir": _quoted(self.folder),
            "pidfile": _quoted(self._pid_file),
            "databases": DATABASES,
            "appendonly": "yes" if self._persistent else "no",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",
            # The command line is how a left-over server is known.
            "set-proc-title": "no",
            "daemonize": "no",
        }
        self._config.unlink(missing_ok=True)
        descriptor = os.open(self._config, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.writelines(f"{name} {value}\n" for name, value in settings.items())
        if self._binaries.user:
            os.chown(self._config, *self._binaries.user)

    def _ready(self, child: Child, port: int, password: str) -> bool:
        """Wait for the broker; False when it has ended instead."""
        deadline = time.monotonic() + _READY_WITHIN
        client = redis.Redis("127.0.0.1", port, password=password, socket_timeout=2)
        with contextlib.closing(client):
            while child.poll() is None and time.monotonic() < deadline:
                # Refused: not yet. Loading: it reads its file. Wrong password: another's port.
                with contextlib.suppress(redis.RedisError, OSError):
                    client.ping()
                    if child.poll() is None and client.info("server")["process_id"] == child.pid:
                        return True
                time.sleep(0.01)
        return False


def _quoted(path: Path) -> str:
    """As a word of the settings file, whatever stands in the name."""
    plain = (
        chr(b) if 0x20 <= b < 0x7F and chr(b) not in '"\\' else f"\\x{b:02x}"
        for b in os.fsencode(path)
    )
    return f'"{"".join(plain)}"'
