"""`fleet up`, as a user runs it: one terminal holds the stack, another one uses it."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.ports import free_port
from producers.local.addresses import DEFAULT_PORTS
from tests.acceptance.commands import Command, gone, open_folder
from tests.harness import Broker, Database, clean_environment, eventually
from tests.warm_commands import CELERY, FLEET, run

ANY_PORTS = [f"--{name}-port=0" for name in DEFAULT_PORTS]
#: Where servers and shop are given. Two that take the usual one at the same time would meet.
ANY_GATEWAY = "--gateway-port=0"


class Up:
    """`fleet up` in a folder, and other commands in the same folder, without a variable."""

    def __init__(self, folder: Path, *options: str, real: bool = False, **settings: Any) -> None:
        self.folder = folder
        self.real = real
        self.options = options
        self.settings = settings
        self.command: Command | None = None

    def start(self, *options: str) -> dict[str, Any]:
        """Start it and wait until it is up; the addresses."""
        args = ["up", "--json", *self.options, *options]
        command = self.command = Command(*args, cwd=self.folder, real=self.real, **self.settings)

        def shown() -> bool:
            if command.process.poll() is not None:
                pytest.fail(command.messages())
            return command.output.read_text().endswith("}\n")

        eventually(shown, 60)
        addresses: dict[str, Any] = json.loads(command.output.read_text())
        return addresses

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """End it and see that nothing is left; its exit code."""
        assert self.command is not None
        family = self.command.family()
        self.command.send(number)
        code = self.command.ends(40)
        gone(family, 3.0)
        return code

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """A `fleet` command in another terminal."""
        return other_terminal([*FLEET, *args], self.folder)

    def json(self, *args: str) -> Any:
        done = self.run(*args, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refunds(self, addresses: dict[str, Any], order_id: str) -> int:
        """How often the order was refunded, by the shop's books."""
        url = f"{addresses['shop']}/admin/books?order_id={order_id}"
        return len(httpx.get(url, timeout=10).json()["refunds"])

    def close(self) -> None:
        if self.command is not None:
            self.command.close()


def other_terminal(argv: list[str], cwd: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    return run(argv, cwd=cwd, env=clean_environment(**settings))


def refused(*args: str, cwd: Path, code: int = 1, **settings: Any) -> str:
    """The one sentence with which `fleet up` ends at once, with its exit code."""
    command = Command("up", *args, cwd=cwd, **settings)
    try:
        assert command.ends(40) == code, command.messages()
        (line,) = [m for m in command.messages().splitlines() if m.startswith("error: ")]
        assert "Traceback" not in command.messages()
        return line
    finally:
        command.close()


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    """A stack of its own, Flower included, with its data in `.fleet` of the folder."""
    with open_folder() as folder:
        made = Up(folder, "--flower", "--concurrency=1", *ANY_PORTS, real=True)
        try:
            yield made
        finally:
            made.close()


@pytest.fixture(scope="module")
def addresses(up: Up) -> dict[str, Any]:
    return up.start()


def test_commands_in_another_terminal_need_no_variable(up: Up, addresses: dict[str, Any]) -> None:
    """`fleet submit` finds the stack through its file, and the refund is made."""
    done = up.json("submit", "refund", "A1001", "--input", '{"user_id": "u_42"}', "--wait", "30")
    assert done["status"] == "done"
    assert up.refunds(addresses, "A1001") == 1


def test_the_gateway_is_open_to_this_machine(up: Up, addresses: dict[str, Any]) -> None:
    """A service without Python hands work over with one request."""
    path, headers = "/threads/refund/A1005", {"Idempotency-Key": "order-A1005"}
    with httpx.Client(base_url=addresses["gateway"], timeout=30) as client:
        sent = client.post(f"{path}/messages", json={"input": {"user_id": "u_42"}}, headers=headers)
        assert sent.status_code == 202, sent.text
        eventually(lambda: client.get(path).json()["status"] == "done", 30)
    assert up.refunds(addresses, "A1005") == 1


def test_celerys_own_commands_need_no_variable(up: Up, addresses: dict[str, Any]) -> None:
    """`celery -A workers inspect active` asks the stack's worker."""
    argv = [*CELERY, "-A", "workers", "inspect", "active"]
    done = other_terminal(argv, up.folder)
    assert done.returncode == 0, done.stderr
    assert "1 node online" in done.stdout


def test_flower_asks_for_a_password(addresses: dict[str, Any]) -> None:
    """The one in the data folder; nobody else looks on."""
    url = f"{addresses['flower']}/api/workers"

    def answer() -> httpx.Response | None:
        try:
            return httpx.get(url, timeout=5)
        except httpx.TransportError:
            return None

    found = eventually(answer, 30)
    assert found is not None and found.status_code == 401
    password = Path(addresses["flower_password_file"]).read_text().strip()
    assert httpx.get(url, auth=("fleet", password), timeout=10).status_code == 200


def test_no_password_is_shown(up: Up, addresses: dict[str, Any]) -> None:
    """They stand in files that only the owner can read."""
    password = (up.folder / ".fleet" / "password").read_text().strip()
    assert up.command is not None
    assert password not in json.dumps(addresses) + up.command.messages()
    assert password in Path(addresses["stack_file"]).read_text()
    for name in ("stack_file", "flower_password_file"):
        assert Path(addresses[name]).stat().st_mode & 0o777 == 0o600
    lines = [" ".join(p.cmdline()) for p in up.command.family()]
    assert not [line for line in lines if password in line]


def test_a_second_one_on_the_same_folder_is_refused(
    up: Up, addresses: dict[str, Any], tmp_path: Path
) -> None:
    """It names the folder and the process that has it."""
    assert up.command is not None
    line = refused(cwd=tmp_path, data_dir=addresses["data_dir"])
    assert f"is in use by process {up.command.process.pid}" in line
    assert addresses["data_dir"] in line
    assert Path(addresses["stack_file"]).exists()


def test_a_dead_worker_is_started_again(up: Up, addresses: dict[str, Any]) -> None:
    """kill -9 of the worker is said, and the next refund goes through."""
    assert up.command is not None
    celery = [p for p in up.command.family() if {"workers", "worker"} <= set(p.cmdline())]
    (parent,) = [p for p in celery if p.ppid() not in {other.pid for other in celery}]
    parent.kill()
    up.command.says("worker was ended by SIGKILL", 15)
    up.command.says("worker is started again", 15)
    done = up.json("submit", "refund", "A1003", "--input", '{"user_id": "u_42"}', "--wait", "30")
    assert done["status"] == "done"


@pytest.mark.parametrize(
    ("name", "pid_file"),
    [("broker", "valkey/valkey.pid"), ("Postgres", "postgres/data/postmaster.pid")],
)
def test_a_dead_server_is_started_again(
    up: Up, addresses: dict[str, Any], name: str, pid_file: str
) -> None:
    """kill -9 of it is said; what was handed over is kept, and what comes next goes through."""
    assert up.command is not None
    order = f"A10{'05' if name == 'broker' else '07'}"
    asked = f"A10{'06' if name == 'broker' else '08'}"
    up.json("submit", "refund", asked, "--input", '{"user_id": "u_42"}', "--wait", "30")
    pid = int((up.folder / ".fleet" / pid_file).read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    up.command.says(f"{name} was ended by SIGKILL", 15)
    up.command.says(f"{name} is started again", 30)
    done = up.json("submit", "refund", order, "--input", '{"user_id": "u_42"}', "--wait", "60")
    assert done["status"] == "done" and up.refunds(addresses, order) == 1
    assert up.json("show", f"refund:{asked}")["status"] == "waiting"


def test_it_goes_on_where_it_was_stopped(up: Up, addresses: dict[str, Any]) -> None:
    """Ctrl-C, then start again: same addresses, the question still open, the books kept."""
    done = up.json("submit", "refund", "A1002", "--input", '{"user_id": "u_42"}', "--wait", "30")
    assert done["status"] == "waiting"
    for small in ("A1001", "A1003"):
        up.json("submit", "refund", small, "--input", '{"user_id": "u_42"}', "--wait", "30")
    assert up.stop(signal.SIGINT) == 0
    assert not Path(addresses["stack_file"]).exists()
    up.options = ("--concurrency=1",)
    again = up.start()
    assert {n: again[n] for n in ("postgres", "broker", "shop")} == {
        n: addresses[n] for n in ("postgres", "broker", "shop")
    }
    assert up.json("show", "refund:A1002")["status"] == "waiting"
    up.json("answer", "refund:A1002", "--approve")
    eventually(lambda: up.json("show", "refund:A1002")["status"] == "done", 20, 0.2)
    assert [up.refunds(again, f"A100{n}") for n in (1, 2, 3)] == [1, 1, 1]


def test_kill_9_leaves_nothing_running(up: Up, addresses: dict[str, Any]) -> None:
    """The guard ends all of it within 2 s, and the next start has the folder and its data."""
    up.json("submit", "refund", "A1004", "--input", '{"user_id": "u_42"}', "--wait", "30")
    assert up.command is not None
    family = up.command.family()
    up.command.send(signal.SIGKILL)
    up.command.ends(5)
    gone(family, 2.0)
    assert not Path(addresses["stack_file"]).exists()
    up.options = ("--no-worker",)
    up.start()
    assert up.json("show", "refund:A1004")["status"] == "waiting"


def test_given_servers_are_used_and_none_is_started(
    tmp_path: Path, database: Database, broker: Broker
) -> None:
    """With both URLs there is a shop and a worker, threads for slots, and nothing else."""
    urls = {"postgres_url": database.url, "redis_url": broker.url}
    up = Up(tmp_path, "--pool=threads", "--concurrency=2", "--shop-port=0", ANY_GATEWAY, **urls)
    try:
        addresses = up.start()
        assert up.command is not None
        names = {p.name() for p in up.command.family()}
        assert not [name for name in names if "postgres" in name or "valkey" in name]
        assert addresses["postgres"] in database.url and addresses["broker"] in broker.url
        up.json("submit", "refund", "A1001", "--input", '{"user_id": "u_42"}', "--wait", "30")
        assert up.refunds(addresses, "A1001") == 1
        # Another data folder's worker on this host has another name.
        (worker,) = up.json("workers")["workers"]
        assert re.match(r"worker-[0-9a-f]{6}@", worker["worker"])
        assert up.stop(signal.SIGHUP) == 0
    finally:
        up.close()


def test_one_given_server_gets_the_other_beside_it(broker: Broker) -> None:
    """A broker's URL alone: Postgres is ours."""
    with open_folder() as folder:
        up = Up(folder, "--no-worker", *ANY_PORTS, redis_url=broker.url)
        try:
            addresses = up.start()
            assert addresses["broker"] in broker.url
            assert (folder / ".fleet" / "postgres").exists()
            assert not (folder / ".fleet" / "valkey").exists()
            assert up.stop(signal.SIGTERM) == 0
        finally:
            up.close()


def test_a_taken_port_is_named_with_the_option_that_helps(
    tmp_path: Path, database: Database, broker: Broker
) -> None:
    """For the shop as for the servers."""
    urls = {"postgres_url": database.url, "redis_url": broker.url}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        shop = refused(f"--shop-port={port}", cwd=tmp_path, **urls)
        with open_folder() as folder:
            others = [*ANY_PORTS, "--no-worker"]
            postgres = refused(*others, f"--postgres-port={port}", cwd=folder)
    assert f"Port {port}, wanted for the shop, is taken" in shop and "--shop-port" in shop
    assert f"Port {port}, wanted for Postgres, is taken" in postgres
    assert "--postgres-port" in postgres


def test_all_ports_that_are_taken_are_told_at_once(tmp_path: Path) -> None:
    """Flower's too, before anything is started."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        ports = one.getsockname()[1], two.getsockname()[1]
        options = [f"--postgres-port={ports[0]}", f"--flower-port={ports[1]}"]
        line = refused(*options, "--flower", "--redis-port=0", "--shop-port=0", cwd=tmp_path)
    assert f"{ports[0]} (wanted for Postgres), {ports[1]} (wanted for Flower)" in line
    assert not (tmp_path / ".fleet").exists()
    twice = [f"--{name}-port={free_port()}" for name in ("postgres", "shop")]
    twice[1] = twice[0].replace("postgres", "shop")
    assert "--postgres-port and --shop-port are both" in refused(*twice, cwd=tmp_path, code=2)


def test_a_damaged_file_of_the_folder_is_told(tmp_path: Path) -> None:
    """Which, and what to do; other commands say the same of the addresses."""
    (tmp_path / ".fleet").mkdir()
    (tmp_path / ".fleet" / "stack.toml").write_text("postgres_url = ")
    settings = {"data_dir": tmp_path / ".fleet"}
    assert "stack.toml is damaged" in refused(cwd=tmp_path, **settings)
    done = other_terminal([*FLEET, "threads"], tmp_path, **settings)
    assert done.returncode == 1 and "stack.toml is damaged" in done.stderr
    (tmp_path / ".fleet" / "stack.toml").unlink()
    (tmp_path / ".fleet" / "ports.json").write_text("[7420]")
    assert "ports.json is damaged" in refused(cwd=tmp_path, **settings)


def test_it_says_which_graphs_it_serves(tmp_path: Path, database: Database, broker: Broker) -> None:
    """Those that come with the fleet where the folder has no langgraph.json."""
    urls = {"postgres_url": database.url, "redis_url": broker.url, "shop_url": "http://shop.test"}
    up = Up(tmp_path, "--no-worker", ANY_GATEWAY, data_dir=tmp_path / "data", **urls)
    for told in ("There is no langgraph.json in this folder", "Serving the graphs of"):
        try:
            up.start()
            assert up.command is not None and told in up.command.messages()
            assert "langgraph.json." in up.command.messages()
            assert up.stop() == 0
        finally:
            up.close()
        (tmp_path / "langgraph.json").write_text('{"graphs": {}}')


def test_a_graph_that_can_not_be_loaded_is_told_at_the_end(
    tmp_path: Path, database: Database, broker: Broker
) -> None:
    """With the reason in one line, where it is read, and for machines."""
    urls = {"postgres_url": database.url, "redis_url": broker.url, "shop_url": "http://shop.test"}
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "langgraph.json").write_text('{"graphs": {"mine": "./broken.py:graph"}}')
    up = Up(tmp_path, "--no-worker", ANY_GATEWAY, data_dir=tmp_path / "data", **urls)
    args = "up", "--no-worker", ANY_GATEWAY
    plain = Command(*args, cwd=tmp_path, data_dir=tmp_path / "data", **urls)
    try:
        eventually(lambda: "Ctrl-C stops" in plain.output.read_text(), 60)
        (line,) = [said for said in plain.output.read_text().splitlines() if "not served" in said]
        assert "mine: can't be loaded from ./broken.py:graph" in line
        plain.send(signal.SIGINT)
        assert plain.ends(40) == 0
        assert "nothing_of_this_name" in up.start()["broken"]["mine"]
        assert up.stop() == 0
    finally:
        plain.close()
        up.close()


def test_a_folder_that_will_not_do_is_refused(tmp_path: Path) -> None:
    """With the folder's name and the setting that names another one."""
    line = refused(cwd=tmp_path, data_dir="/proc/fleet")
    assert "/proc/fleet" in line and "FLEET_DATA_DIR" in line
    (tmp_path / "file").touch()
    line = refused(cwd=tmp_path, data_dir="file")
    assert "file cannot be used: it is a file" in line and "--data-dir" in line
    for name, told, code in [
        ("", "It is empty", 2),
        (" ", "It is empty", 2),
        ("n" * 300, "File name too long", 1),
        ("new\nline", "can't be printed", 2),
        (os.fsdecode(b"by\xffte"), "can't be printed", 2),
    ]:
        assert told in refused(f"--data-dir={name}", cwd=tmp_path, code=code)
    for name in ("n" * 300, "new\nline"):
        code = 2 if "\n" in name else 1
        assert "cannot be used" in refused(cwd=tmp_path, data_dir=name, code=code)


def test_a_folder_named_on_the_command_line_holds_the_data(
    tmp_path: Path, database: Database, broker: Broker
) -> None:
    """Whatever the setting says, and relative to the folder where the command runs."""
    urls = {"postgres_url": database.url, "redis_url": broker.url, "shop_url": "http://shop.test"}
    options = "--data-dir=my data", "--no-worker", ANY_GATEWAY
    up = Up(tmp_path, *options, data_dir="/proc/fleet", **urls)
    try:
        assert up.start()["data_dir"] == str(tmp_path / "my data")
        assert (tmp_path / "my data" / "stack.toml").exists()
        assert up.stop() == 0
    finally:
        up.close()


def test_given_servers_that_do_not_answer_are_refused(
    tmp_path: Path, database: Database, broker: Broker
) -> None:
    """Each with the setting that names it, and no password."""
    nowhere = f"127.0.0.1:{free_port()}"
    postgres = f"postgresql://fleet:secret@{nowhere}/fleet"
    line = refused(cwd=tmp_path, postgres_url=postgres, redis_url=broker.url)
    assert "FLEET_POSTGRES_URL" in line and "secret" not in line
    line = refused(cwd=tmp_path, postgres_url=database.url, redis_url=f"redis://:secret@{nowhere}")
    assert "FLEET_REDIS_URL" in line and "secret" not in line


def test_a_broker_that_is_too_old_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is what the server itself says."""
    from infra.errors import BrokerUnavailable
    from producers.local import given

    given.check_broker(broker.url)
    monkeypatch.setattr(given, "MINIMUM_REDIS", (99, 0))
    with pytest.raises(BrokerUnavailable, match="too old"):
        given.check_broker(broker.url)
