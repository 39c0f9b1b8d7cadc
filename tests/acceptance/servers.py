"""Servers of a test's own, which can die, come back and hand over to another."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import psutil
import psycopg

from infra.binaries import find_binaries
from infra.devservers import Stack, free_port
from infra.folders import temporary_folder
from infra.postgres_server import MAX_CONNECTIONS
from tests.harness import Database, eventually


class Servers:
    """A stack on a folder of its own; `options` are the stack's."""

    def __init__(self, **options: Any) -> None:
        self.folder = temporary_folder(servers_enter=True)
        self._options = options
        self.stack = Stack(self.folder, durable=False, **options)

    def __enter__(self) -> Self:
        self.stack.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def end(self) -> None:
        """Stop them in order."""
        self.stack.close()

    def start(self) -> None:
        """Once more, on the ports of before, with what they have kept."""
        self.stack = Stack(self.folder, durable=False, **self._options)
        self.stack.__enter__()

    def crash_postgres(self) -> None:
        """SIGKILL to all its processes, as when its host or container dies; returns when they are
        dead. A backend whose postmaster alone is killed may still commit."""
        pid_file = self.stack.data_dir / "postgres/data/postmaster.pid"
        postmaster = psutil.Process(int(pid_file.read_text().split()[0]))
        postmaster.suspend()  # it starts nothing in place of what dies
        processes = [*postmaster.children(recursive=True), postmaster]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        eventually(lambda: all(map(_is_dead, processes)), 20)


class Standby:
    """A synchronous standby of the stack's Postgres: what the one has committed, both have."""

    def __init__(self, primary: Servers) -> None:
        binaries, stack = find_binaries(), primary.stack
        data = primary.folder / "standby"
        parts, port = urlsplit(stack.postgres_url), free_port()
        self.url = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()
        copy: list[str | Path] = [binaries.postgres.parent / "pg_basebackup", "-D", data]
        copy += ["--write-recovery-conf", "--checkpoint=fast", "--dbname", stack.postgres_url]
        subprocess.run(copy, check=True, timeout=60)
        argv: list[str | Path] = [binaries.postgres, "-D", data, "-c", f"port={port}"]
        argv += ["-c", f"max_connections={MAX_CONNECTIONS}", "-c", "listen_addresses=127.0.0.1"]
        argv += ["-c", "unix_socket_directories=", "-c", "fsync=off"]
        if binaries.user:
            for path in (data, *data.rglob("*")):
                shutil.chown(path, *binaries.user)
            argv = [sys.executable, "-c", _AS_USER, *map(str, binaries.user), *argv]
        stack.spawn(
            "standby", argv, {"PATH": os.defpath, "LC_ALL": "C"}, primary.folder / "standby.log"
        )
        with psycopg.connect(stack.postgres_url, autocommit=True) as conn:
            conn.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            conn.execute("SELECT pg_reload_conf()")
            sql = "SELECT sync_state FROM pg_stat_replication"
            eventually(lambda: conn.execute(sql).fetchall() == [("sync",)], 20)

    def promote(self) -> None:
        """It is the primary now; returns when it takes writes."""
        with psycopg.connect(self.url, autocommit=True) as conn:
            # Nobody follows it.
            conn.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
            assert conn.execute("SELECT pg_promote()").fetchone() == (True,)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


# What the database says of turns


def claims(database: Database, orders: Iterable[str]) -> dict[str, int]:
    """The epoch of each order's latest claim."""
    found = database.fetch("SELECT key, epoch FROM fleet.threads WHERE key = ANY(%s)", [*orders])
    return dict(found)


def claimed_anew(database: Database, before: dict[str, int]) -> Callable[[], bool]:
    """Whether each of the orders has a later claim than it had; to be waited for."""

    def all_are() -> bool:
        now = claims(database, before)
        assert [order for order in before if now[order] == before[order]] == []
        return True

    return all_are


#: Postgres refuses root.
_AS_USER = """import os, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
os.execv(sys.argv[3], sys.argv[3:])"""
