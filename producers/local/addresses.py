"""Ports that `fleet up` takes, and the addresses that it shows: never a password."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

from infra.errors import PortTaken, SettingsError
from infra.ports import Ports, is_free

#: One block, below what systems give out to outgoing connections.
DEFAULT_PORTS = {"postgres": 7420, "redis": 7421, "shop": 7422, "flower": 7423, "gateway": 7424}
_CALLED = {
    "postgres": "Postgres",
    "redis": "the broker",
    "shop": "the shop",
    "flower": "Flower",
    "gateway": "the gateway",
}


class ChosenPorts:
    """A number for each server that is needed: the one wished for, else that of last time or
    the default, else, where these are taken, any free one, which `say` is told.

    A wish of 0 takes any free port. 0 as a number: the stack chooses, for its servers.
    Raises DataDamaged, SettingsError for one number wished for twice, and PortTaken for all
    that were wished for and are taken.
    """

    def __init__(
        self,
        data_dir: Path,
        wished: Mapping[str, int | None],
        needed: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self._path = data_dir / "ports.json"
        self._known = Ports(self._path)
        order = [name for name in DEFAULT_PORTS if name in needed]
        named = {name: port for name in order if (port := wished.get(name))}
        _require_different(named)
        if taken := {name: port for name, port in named.items() if not is_free(port)}:
            raise _all_taken(taken)
        self._numbers = dict(named)
        for name in (n for n in order if n not in named):
            self._numbers[name] = self._unwished(name, wished.get(name) == 0, say)

    def _unwished(self, name: str, any_free: bool, say: Callable[[str], None]) -> int:
        number = self._known.known(name) or DEFAULT_PORTS[name]
        given = number in self._numbers.values()
        if not any_free:
            if not given and is_free(number):
                return number
            who = "another of these servers" if given else "another program"
            say(f"Port {number} is taken by {who}: {_CALLED[name]} takes any free one.")
        return 0 if name in ("postgres", "redis") else self._known.chooser(name)()

    def __getitem__(self, name: str) -> int:
        return self._numbers.get(name, 0)

    def remember(self, name: str) -> None:
        """Take it again next time."""
        Ports(self._path).remember(name, self[name])

    def with_option(self, taken: PortTaken) -> PortTaken:
        """The error, naming the option that helps."""
        number = taken.data["port"]
        name = next((n for n, port in self._numbers.items() if port == number), "postgres")
        return _all_taken({name: number})


def _require_different(named: Mapping[str, int]) -> None:
    for port in named.values():
        options = [f"--{name}-port" for name, other in named.items() if other == port]
        if len(options) > 1:
            raise SettingsError(
                f"{' and '.join(options)} are both {port}.",
                "Give each a port of its own, or 0 for any free one.",
            )


def _all_taken(taken: Mapping[str, int]) -> PortTaken:
    """One error for all of them."""
    error = PortTaken(*next((_CALLED[name], port) for name, port in taken.items()))
    named = ", ".join(f"{port} (wanted for {_CALLED[name]})" for name, port in taken.items())
    many = len(taken) > 1
    if many:
        error.message = f"Ports {named} are taken by other programs."
        error.data["ports"] = dict(taken)
    options = ", ".join(f"--{name}-port" for name in taken)
    error.hint = (
        f"Stop {'these programs' if many else 'that program'}, or choose "
        f"{'other ports' if many else 'another port'} with {options} (0: any free one)."
    )
    return error


@dataclass(frozen=True)
class Addresses:
    """Where everything is, without passwords. broken: graphs that can't be loaded, and why."""

    data_dir: Path
    stack_file: Path
    postgres: str
    broker: str
    shop: str
    gateway: str | None
    flower: str | None
    flower_password_file: Path | None
    graphs: list[str]
    broken: dict[str, str]
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
