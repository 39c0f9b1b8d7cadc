"""Loopback ports of the embedded servers.

A port that was chosen freely is remembered in the data folder and taken again at the
next start if it is still free, so that addresses once copied go on working.
"""

import json
import socket
from collections.abc import Callable
from pathlib import Path

from infra.errors import DataDamaged, PortTaken


class Ports:
    """The ports of one data folder. Raises DataDamaged where its file is not as we wrote it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)

    def known(self, server: str) -> int | None:
        """The port of last time."""
        return self._known.get(server)

    def chooser(self, server: str) -> Callable[[], int]:
        """A function that gives the port of last time if it is free, then any free ones."""
        last = self.known(server)
        remembered = [] if last is None else [last]

        def choose() -> int:
            if remembered and is_free(port := remembered.pop()):
                return port
            return free_port()

        return choose

    def remember(self, server: str, port: int) -> None:
        self._known[server] = port
        self._path.write_text(json.dumps(self._known) + "\n")


def _read(path: Path) -> dict[str, int]:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not JSON"
        raise DataDamaged(path, reason, _BEGIN_ANEW) from None
    if not isinstance(found, dict):
        raise DataDamaged(path, "it is no object with ports", _BEGIN_ANEW)
    for server, port in found.items():
        if type(port) is not int or not 0 < port < 65536:
            raise DataDamaged(path, f"{port!r} of {server} is no port", _BEGIN_ANEW)
    return found


_BEGIN_ANEW = "Delete it and start again: it says only which ports were taken last."


def require_free(server: str, port: int) -> None:
    """Raise PortTaken when something listens on the port; 0 is always free."""
    if port and not is_free(port):
        raise PortTaken(server, port)


def is_free(port: int) -> bool:
    """Whether a server could listen on the loopback port now."""
    with socket.socket() as sock:
        # As servers do it: what lingers of an earlier connection does no harm.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
