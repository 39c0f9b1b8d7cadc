"""What `fleet up` shows and chooses: addresses without passwords, ports, new lines of logs."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from infra.errors import DataDamaged, PortTaken, ServerFailed, SettingsError
from infra.folders import check_data_folder
from infra.ports import free_port
from producers.local import addresses
from producers.local.addresses import (
    DEFAULT_PORTS,
    ChosenPorts,
    broker_address,
    postgres_address,
)
from producers.local.following import Followed
from producers.local.processes import environment, slot_pid, worker_name


def test_addresses_have_no_password() -> None:
    """URLs, libpq's own form, and a socket."""
    assert postgres_address("postgresql://me:secret@db:5433/fleet") == "db:5433/fleet"
    assert postgres_address("host=db user=me password=secret") == "db:5432/me"
    assert broker_address("redis://:secret@cache:6380/3") == "cache:6380/3"
    assert broker_address("unix://:secret@/run/redis.sock?db=1") == "/run/redis.sock"


ALL = tuple(DEFAULT_PORTS)


@pytest.fixture
def free_defaults(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Default ports that nobody has, whatever runs on this machine."""
    numbers = dict(zip(ALL, {free_port(): None for _ in range(20)}, strict=False))
    monkeypatch.setattr(addresses, "DEFAULT_PORTS", numbers)
    return numbers


@contextmanager
def taken(count: int = 1) -> Iterator[list[int]]:
    """Ports on which somebody listens."""
    with ExitStack() as servers:
        made = [servers.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        yield [server.getsockname()[1] for server in made]


def chosen(folder: Path, **wished: int) -> tuple[ChosenPorts, list[str]]:
    """The ports of all four, and what was said of them."""
    said: list[str] = []
    return ChosenPorts(folder, wished, ALL, said.append), said


def test_a_port_is_wished_for_or_that_of_last_time_or_the_default(
    tmp_path: Path, free_defaults: dict[str, int]
) -> None:
    """In this order."""
    wish, last, other = free_port(), free_port(), free_port()
    (tmp_path / "ports.json").write_text(json.dumps({"postgres": last, "redis": other}))
    ports, said = chosen(tmp_path, redis=wish)
    assert (ports["postgres"], ports["redis"], ports["shop"]) == (
        last,
        wish,
        free_defaults["shop"],
    )
    assert said == []


def test_a_wish_of_0_takes_any_free_port(tmp_path: Path) -> None:
    """Servers' ports are chosen by the stack, which is told 0."""
    ports, said = chosen(tmp_path, postgres=0, redis=0, shop=0, flower=0)
    assert ports["postgres"] == 0 and ports["shop"] > 1024 and said == []


def test_a_port_nobody_wished_for_gives_way(tmp_path: Path, free_defaults: dict[str, int]) -> None:
    """To another program, and to what was wished for another of the servers; it is said."""
    with taken() as (port,):
        (tmp_path / "ports.json").write_text(json.dumps({"shop": port}))
        ports, said = chosen(tmp_path, redis=free_defaults["postgres"])
    assert ports["postgres"] == 0 and ports["redis"] == free_defaults["postgres"]
    assert ports["shop"] not in (0, port)
    assert said == [
        f"Port {free_defaults['postgres']} is taken by another of these servers: Postgres takes "
        "any free one.",
        f"Port {port} is taken by another program: the shop takes any free one.",
    ]


def test_all_taken_ports_are_told_at_once(tmp_path: Path) -> None:
    """Flower's too, with the options that help."""
    with taken(2) as (one, two), pytest.raises(PortTaken) as caught:
        chosen(tmp_path, redis=one, flower=two)
    for part in (f"{one} (wanted for the broker)", f"{two} (wanted for Flower)"):
        assert part in str(caught.value)
    assert "--redis-port, --flower-port" in caught.value.hint


def test_one_port_for_two_is_refused(tmp_path: Path) -> None:
    """As a wrong command line."""
    with pytest.raises(SettingsError, match="--postgres-port and --shop-port are both 7000"):
        ChosenPorts(tmp_path, {"postgres": 7000, "shop": 7000}, ALL[:3], print)


def test_a_data_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """The file is named, not something that would have been in the folder."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "a" / "b"):
        with pytest.raises(ServerFailed, match=r"cannot be used: \S+ is a file"):
            check_data_folder(folder)


def test_a_port_that_is_not_needed_is_not_looked_at(tmp_path: Path) -> None:
    """With servers of one's own."""
    with taken() as (port,):
        ChosenPorts(tmp_path, {"postgres": port, "flower": port}, ["shop"], print)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", '{"redis": null}', '{"redis": "7"}', '{"redis": 70000}', "\xff"]
)
def test_a_damaged_file_of_ports_is_told_and_kept(tmp_path: Path, content: str) -> None:
    """One sentence: which file, and what to do."""
    path = tmp_path / "ports.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataDamaged, match=r"ports\.json is damaged: .*\. Delete it"):
        chosen(tmp_path)
    assert path.read_bytes() == content.encode("latin-1")


def test_a_port_taken_meanwhile_is_told_with_its_option(
    tmp_path: Path, free_defaults: dict[str, int]
) -> None:
    """So that the sentence says what to type."""
    ports, _ = chosen(tmp_path)
    told = ports.with_option(PortTaken("the broker", free_defaults["redis"]))
    assert "--redis-port" in str(told)


def test_a_followed_log_gives_new_whole_lines(tmp_path: Path) -> None:
    """A line that is still being written comes when it is whole."""
    log, said = tmp_path / "worker.log", list[str]()
    log.write_text("old\n")
    followed = Followed({"worker": log})
    with log.open("a") as file:
        file.write("new\nhal")
        file.flush()
        followed.print_new(said.append)
        file.write("f\n")
    followed.print_new(said.append)
    followed.print_new(said.append)
    assert said == ["worker | new", "worker | half"]


def test_a_childs_environment_has_the_settings_that_are_set() -> None:
    """None leaves one out; what is kept of ours is there."""
    made = environment({"HOME": "/h", "FLEET_QUEUE": "q"}, redis_url="redis://", shop_url=None)
    assert made["FLEET_REDIS_URL"] == "redis://" and made["FLEET_QUEUE"] == "q"
    assert "FLEET_SHOP_URL" not in made and made["HOME"] == "/h"


def test_an_owner_names_its_process() -> None:
    """Whatever the worker is called."""
    assert slot_pid("w1@host:4711:140") == 4711
    assert slot_pid("w1@::1:4711:140") == 4711


def test_workers_of_two_data_folders_have_names_of_their_own(tmp_path: Path) -> None:
    """Where they share servers; the same one at each start, and plain with servers of one's own."""
    one, two = (worker_name("worker", tmp_path / n) for n in "12")
    assert one != two and one == worker_name("worker", tmp_path / "1")
    assert {n.partition("@")[2] for n in (one, two)} == {worker_name("worker").partition("@")[2]}
    assert worker_name("worker").startswith("worker@")
