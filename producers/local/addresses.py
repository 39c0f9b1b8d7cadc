"""Ports that `fleet up` takes, and the addresses that it shows: never a password."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from infra.errors import PortTaken
from infra.ports import Ports

#: One block, below what systems give out to outgoing connections.
DEFAULT_PORTS = {"postgres": 7420, "redis": 7421, "shop": 7422, "flower": 7423}


class ChosenPorts:
    """A number for each server: the one wished for, that of last time, or the default.

    A wish of 0 takes any free port: the stack chooses for its servers, we for the others.
    """

    def __init__(self, data_dir: Path, wished: Mapping[str, int | None]) -> None:
        self._path = data_dir / "ports.json"
        known = Ports(self._path)
        self._numbers = {
            name: known.known(name) or default if wished.get(name) is None else wished[name]
            for name, default in DEFAULT_PORTS.items()
        }
        for name in ("shop", "flower"):
            self._numbers[name] = self._numbers[name] or known.chooser(name)()

    def __getitem__(self, name: str) -> int:
        return self._numbers[name] or 0

    def remember(self, name: str) -> None:
        """Take it again next time."""
        Ports(self._path).remember(name, self[name])

    def with_option(self, taken: PortTaken) -> PortTaken:
        """The error, naming the option that helps."""
        number = taken.data["port"]
        name = next((n for n, port in self._numbers.items() if port == number), "postgres")
        option = f"--{name}-port"
        taken.hint = f"Stop that program, or choose another port with {option} (0: any free one)."
        return taken


@dataclass(frozen=True)
class Addresses:
    """Where everything is, without passwords."""

    data_dir: Path
    stack_file: Path
    postgres: str
    broker: str
    shop: str
    flower: str | None
    flower_password_file: Path | None
    graphs: list[str]
    logs: dict[str, Path] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        shown = {k: str(v) if isinstance(v, Path) else v for k, v in vars(self).items()}
        return shown | {"logs": {name: str(path) for name, path in self.logs.items()}}


def postgres_address(url: str) -> str:
    """host:port/database, and no password."""
    parts = conninfo_to_dict(url)
    host, port = parts.get("host") or "localhost", parts.get("port") or 5432
    return f"{host}:{port}/{parts.get('dbname') or parts.get('user') or ''}"


def broker_address(url: str) -> str:
    """host:port/database or the socket's path, and no password."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}{parts.path or '/0'}"
