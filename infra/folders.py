"""The data folder of a stack: made so that the servers' user can enter it, and locked."""

import fcntl
import os
import re
import secrets
import tempfile
import time
from pathlib import Path

from infra.datadir import enterable_by_others
from infra.errors import DataDamaged, DataFolderBusy, ServerFailed, SettingsError
from infra.leftovers import is_alive

_CHOOSE = "Choose another with --data-dir or FLEET_DATA_DIR."
# Goes into URLs and files as it is.
_PASSWORD = re.compile(r"[A-Za-z0-9_.~-]{8,200}")

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


def check_data_folder(folder: Path) -> None:
    """Raise SettingsError or ServerFailed for what can be no data folder; nothing is made."""
    if not str(folder).isprintable():
        raise SettingsError(
            f"The data folder {str(folder)!r} cannot be used: its name has characters that "
            "can't be printed.",
            _CHOOSE,
        )
    try:
        is_other = folder.exists() and not folder.is_dir()
    except OSError as exc:
        raise unusable(folder, exc) from None
    if is_other:
        raise ServerFailed(f"The data folder {folder} cannot be used: it is a file.", _CHOOSE)
    above = next((path for path in folder.absolute().parents if path.exists()), folder)
    if not folder.exists() and not above.is_dir():
        raise ServerFailed(f"The data folder {folder} cannot be used: {above} is a file.", _CHOOSE)


def unusable(folder: object, exc: OSError) -> ServerFailed:
    """What the system says of the folder or of something in it, as an error for people."""
    within = exc.filename if isinstance(exc.filename, str) else ""
    where = f" ({within})" if within and within != str(folder) else ""
    return ServerFailed(
        f"The data folder {folder} cannot be used: {exc.strerror or exc}{where}.",
        "Put that right, or choose another folder with --data-dir or FLEET_DATA_DIR.",
    )


def make_data_folder(folder: Path, servers_enter: bool) -> Path:
    """Make the folder and those above it where need be; raises SettingsError if it won't do.

    What exists keeps its mode: it may be a folder that is not only ours.
    """
    check_data_folder(folder)
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
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
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


def password(path: Path, hint: str, *, made_before: bool = False) -> str:
    """A password: made at the first start, kept where only we can read it.

    Raises DataDamaged, with the hint, for a file that holds none, or where there has to be
    one: what was made with it knows no other.
    """
    try:
        known = path.read_text().strip()
    except FileNotFoundError:
        if made_before:
            raise DataDamaged(path, "it is not there", hint) from None
        made = secrets.token_urlsafe(24)
        write_private(path, made + "\n")
        return made
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not text"
        raise DataDamaged(path, reason, hint) from None
    if not _PASSWORD.fullmatch(known):
        raise DataDamaged(path, "it holds no password of ours", hint)
    return known


def write_private(path: Path, text: str) -> None:
    """Write a file that only we can read, whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
