"""What `fleet up` shows and chooses: addresses without passwords, ports, new lines of logs."""

from pathlib import Path

from infra.errors import PortTaken
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


def test_a_port_is_wished_for_or_that_of_last_time_or_the_default(tmp_path: Path) -> None:
    """In this order."""
    (tmp_path / "ports.json").write_text('{"postgres": 5001, "redis": 5002}')
    ports = ChosenPorts(tmp_path, {"redis": 5003, "shop": None})
    chosen = (ports["postgres"], ports["redis"], ports["shop"])
    assert chosen == (5001, 5003, DEFAULT_PORTS["shop"])


def test_a_wish_of_0_takes_any_free_port(tmp_path: Path) -> None:
    """Servers' ports are chosen by the stack, which is told 0."""
    ports = ChosenPorts(tmp_path, {"postgres": 0, "shop": 0})
    assert ports["postgres"] == 0 and ports["shop"] > 1024


def test_a_taken_port_is_told_with_its_option(tmp_path: Path) -> None:
    """So that the sentence says what to type."""
    ports = ChosenPorts(tmp_path, {})
    told = ports.with_option(PortTaken("the broker", DEFAULT_PORTS["redis"]))
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
