"""The data folder of a stack: made so that the servers' user can enter it, and locked."""

import fcntl
import os
import secrets
import tempfile
import time
from pathlib import Path

from infra.datadir import enterable_by_others
from infra.errors import DataFolderBusy, SettingsError
from infra.leftovers import is_alive

# How long the guard of a stack that was just killed may hold the folder.
_GUARD_LEAVES_WITHIN = 5.0
# How long an owner that was sent SIGKILL may still be seen alive.
_OWNER_DIES_WITHIN = 0.2


def temporary_folder(servers_enter: bool) -> Path:
    """A new empty folder, which the servers' user can reach if it is another than we."""
    folder = Path(tempfile.mkdtemp(prefix="threadfleet-")).resolve()
    if servers_enter and not enterable_by_others(folder.parent):
        folder.rmdir()
        folder = Path(tempfile.mkdtemp(prefix="threadfleet-", dir="/var/tmp"))
    if servers_enter:
        folder.chmod(0o711)
    return folder


def make_data_folder(folder: Path, servers_enter: bool) -> Path:
    """Make the folder and those above it where need be; raises SettingsError if it won't do.

    What exists keeps its mode: it may be a folder that is not only ours.
    """
    folder = folder.resolve()
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        path.chmod(0o711 if servers_enter else 0o700)
    if servers_enter and not enterable_by_others(folder):
        raise SettingsError(
            f"The data folder {folder} cannot be entered by the user nobody, "
            "as whom Postgres runs when started by root.",
            "Set FLEET_DATA_DIR to a folder that others may enter, or run as another user.",
        )
    return folder


def make_server_folder(folder: Path, user: tuple[int, int] | None) -> Path:
    """A folder that only the server's user can enter."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if user is not None and folder.stat().st_uid != user[0]:
        os.chown(folder, *user)
    return folder


def lock_folder(folder: Path) -> int:
    """The descriptor of the folder's lock, which holds as long as any copy of it is open.

    Raises DataFolderBusy with the owner's pid. The lock of a dead owner is waited for:
    its guard lets go when it has ended the servers.
    """
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode().strip()
            pid = int(owner) if owner.isdigit() else None
            patience = _OWNER_DIES_WITHIN if pid and is_alive(pid) else _GUARD_LEAVES_WITHIN
            if time.monotonic() - begun > patience:
                os.close(descriptor)
                # What is left of a dead owner holds it: nobody can stop that by its pid.
                raise DataFolderBusy(folder, pid if pid and is_alive(pid) else None) from None
            time.sleep(0.02)
            continue
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor


def password(path: Path) -> str:
    """The servers' password: made at the first start, kept where only we can read it."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        made = secrets.token_urlsafe(24)
        write_private(path, made + "\n")
        return made


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
