"""The embedded servers: they keep data, refuse each other, and die with their owner."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from infra.datadir import default_data_dir, enterable_by_others
from infra.devservers import Stack
from infra.errors import DataFolderBusy, PortTaken, ServerFailed, SettingsError
from infra.leftovers import command_line, is_alive
from infra.owned import GuardLink
from infra.ports import free_port
from tests.harness import clean_environment, eventually

# An owner as a process of its own: it says what it started and waits to be killed.
OWNER = """
import json, os, sys, time
from pathlib import Path
from infra.devservers import Stack

with Stack(Path(sys.argv[1]), durable=False) as stack:
    script = "trap '' TERM; sleep 600 & sleep 600; sleep 600"
    started = {
        "guard": stack.guard_pid,
        "child": stack.spawn("stubborn", ["sh", "-c", script]).pid,
        "postgres": stack.postgres_url,
        "redis": stack.redis_url,
        "stack_file": str(stack.publish()),
    }
    print(json.dumps(started), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder that the servers' user can enter: pytest's own are closed to others."""
    with Stack(durable=False, postgres_url="unused", redis_url="unused") as stack:
        base = stack.data_dir
        base.chmod(0o711)
        yield base / "data"


@pytest.fixture
def owner(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A process that runs a stack in the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    yield process, json.loads(process.stdout.readline())
    process.kill()
    process.wait(10)


def running_under(folder: Path, *pids: int) -> list[str]:
    """Command lines of live processes of this folder, or with these pids or groups."""
    found = []
    columns = ["-o", "pid=", "-o", "pgid=", "-o", "stat=", "-o", "args="]
    listed = subprocess.run(
        ["ps", "-e", "-ww", *columns], capture_output=True, text=True, check=True
    )
    for line in listed.stdout.splitlines():
        pid, group, state, args = line.split(None, 3)
        if "Z" not in state and "ps -e -ww" not in args:
            ours = str(folder) in args and int(pid) != os.getpid()
            if ours or int(pid) in pids or int(group) in pids:
                found.append(line)
    return found


def test_data_is_kept_from_one_start_to_the_next(folder: Path) -> None:
    """Rows, keys, password and addresses are the same again."""
    with Stack(folder) as stack:
        addresses = stack.postgres_url, stack.redis_url
        with psycopg.connect(stack.postgres_url) as conn:
            conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        redis.Redis.from_url(stack.redis_url).set("kept", "42")
    assert running_under(folder) == []
    with Stack(folder) as stack:
        assert (stack.postgres_url, stack.redis_url) == addresses
        with psycopg.connect(stack.postgres_url) as conn:
            assert conn.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert redis.Redis.from_url(stack.redis_url).get("kept") == b"42"


def test_the_servers_are_set_up_as_the_fleet_needs_them(stack: Stack) -> None:
    """Loopback TCP only, passwords asked for, nothing evicted, Unicode collation."""
    wrong = stack.postgres_url.replace("fleet:", "fleet:x")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)
    with psycopg.connect(stack.postgres_url) as conn:
        shown = {
            name: conn.execute(f"SHOW {name}".encode()).fetchone()
            for name in ("listen_addresses", "unix_socket_directories", "max_connections")
        }
        assert shown == {
            "listen_addresses": ("127.0.0.1",),
            "unix_socket_directories": ("",),
            "max_connections": ("200",),
        }
        assert conn.execute("SELECT upper('é'), 'a' < 'é'").fetchone() == ("É", True)
    client = redis.Redis.from_url(stack.redis_url)
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=client.connection_pool.connection_kwargs["port"]).ping()


def test_no_password_is_in_the_list_of_processes(stack: Stack) -> None:
    """Other users of the machine can read it."""
    password = (stack.data_dir / "password").read_text().strip()
    listed = subprocess.run(
        ["ps", "-e", "-ww", "-o", "args="], capture_output=True, text=True, check=True
    )
    assert password not in listed.stdout
    assert (stack.data_dir / "password").stat().st_mode & 0o777 == 0o600


def test_kill_9_of_the_owner_leaves_nothing_within_a_second(
    folder: Path, owner: tuple[subprocess.Popen[str], dict[str, str]]
) -> None:
    """Servers, guard and a child that ignores SIGTERM, with the child's own children."""
    process, started = owner
    assert len(running_under(folder)) >= 4
    process.kill()
    process.wait(5)
    pids = int(started["guard"]), int(started["child"])
    eventually(lambda: running_under(folder, *pids) == [], timeout=1.0)
    assert not Path(started["stack_file"]).exists()


def test_after_kill_9_the_folder_starts_again(
    folder: Path, owner: tuple[subprocess.Popen[str], dict[str, str]]
) -> None:
    """At once: the dying guard is waited for; what was committed is there."""
    process, started = owner
    with psycopg.connect(started["postgres"]) as conn:
        conn.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    process.kill()
    with Stack(folder, durable=False) as stack, psycopg.connect(stack.postgres_url) as conn:
        assert conn.execute("SELECT answer FROM kept").fetchone() == (42,)


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
def test_kill_9_of_the_guard_leaves_no_server(
    folder: Path, owner: tuple[subprocess.Popen[str], dict[str, str]]
) -> None:
    """The kernel tells the servers; the folder starts again."""
    process, started = owner
    os.kill(int(started["guard"]), signal.SIGKILL)
    process.kill()
    eventually(lambda: [ln for ln in running_under(folder) if "sleep" not in ln] == [], timeout=5)
    with Stack(folder, durable=False) as stack:
        assert redis.Redis.from_url(stack.redis_url).ping()
    for line in running_under(folder, int(started["child"])):
        os.kill(int(line.split()[0]), signal.SIGKILL)


def test_ctrl_c_in_the_terminal_does_not_reach_the_servers(
    folder: Path, owner: tuple[subprocess.Popen[str], dict[str, str]]
) -> None:
    """Guard and children are in other process groups than the owner."""
    process, _ = owner
    lines = [line.split() for line in running_under(folder)]
    groups = {int(group) for pid, group, *_ in lines if int(pid) != process.pid}
    assert len(groups) >= 3
    assert os.getpgid(process.pid) not in groups


def test_a_second_stack_on_one_folder_is_refused(
    folder: Path, owner: tuple[subprocess.Popen[str], dict[str, str]]
) -> None:
    """The error names the owner, and the first stack goes on."""
    process, started = owner
    with (
        pytest.raises(DataFolderBusy, match=rf"in use by process {process.pid}\.") as caught,
        Stack(folder),
    ):
        pass
    assert caught.value.data["pid"] == process.pid
    psycopg.connect(started["postgres"]).close()


@pytest.mark.parametrize("server", ["postgres_port", "redis_port"])
def test_a_port_that_is_taken_is_named(server: str) -> None:
    """Nothing is left behind by the failed start."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stack = Stack(durable=False, **{server: port})
        with pytest.raises(PortTaken, match=f"Port {port}") as caught, stack:
            pass
    assert caught.value.data["port"] == port
    assert not stack.data_dir.exists()
    assert running_under(stack.data_dir) == []


def test_a_chosen_port_is_used() -> None:
    """For those who want fixed addresses."""
    port = free_port()
    with Stack(durable=False, redis_port=port, postgres_url="unused") as stack:
        assert f"127.0.0.1:{port}/" in stack.redis_url


def test_a_temporary_folder_is_gone_at_the_end() -> None:
    """With everything in it."""
    with Stack(durable=False) as stack:
        folder = stack.data_dir
        assert (folder / "postgres").exists()
    assert not folder.exists()


def test_a_half_made_cluster_is_made_anew(folder: Path) -> None:
    """initdb was cut off by a kill."""
    half = folder / "postgres" / "new"
    half.mkdir(parents=True)
    folder.chmod(0o711)
    (half / "PG_VERSION").write_text("18\n")
    with Stack(folder, durable=False, redis_url="unused") as stack:
        psycopg.connect(stack.postgres_url).close()


def test_a_pid_file_with_a_strangers_pid_does_not_stop_the_start(folder: Path) -> None:
    """Pids come round again after a reboot."""
    with Stack(folder, durable=False, redis_url="unused"):
        pid_file = folder / "postgres" / "data" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        lines[0] = str(sleeper.pid)
        pid_file.write_text("\n".join(lines) + "\n")
        with Stack(folder, durable=False, redis_url="unused") as stack:
            psycopg.connect(stack.postgres_url).close()
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as another user")
def test_root_is_told_of_a_folder_that_nobody_can_enter(tmp_path: Path) -> None:
    """One sentence, before anything is made."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SettingsError, match="FLEET_DATA_DIR"), Stack(closed / "data"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as another user")
def test_roots_default_folder_can_be_entered_by_nobody(tmp_path: Path) -> None:
    """.fleet in the project, unless the project lies in a closed folder."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert closed not in default_data_dir(closed).parents
    closed.chmod(0o755)
    if enterable_by_others(closed):
        assert default_data_dir(closed) == closed / ".fleet"


def test_a_spawned_child_can_be_watched_and_killed(stack: Stack) -> None:
    """Exit codes, logs, signals to one process or the group."""
    done = stack.spawn("done", ["sh", "-c", "echo said; exit 3"])
    assert done.wait(5) == 3
    assert done.log() == "said\n"
    assert not done.kill_group()
    family = stack.spawn("family", ["sh", "-c", "sleep 600 & sleep 600"])
    assert family.poll() is None
    eventually(lambda: len(running_under(stack.data_dir / "none", family.pid)) == 3, timeout=5)
    assert family.kill_group()
    assert family.wait(5) == -signal.SIGKILL
    eventually(lambda: running_under(stack.data_dir / "none", family.pid) == [], timeout=5)


def test_a_group_is_reachable_after_its_leader_has_gone(stack: Stack) -> None:
    """A worker's pool may outlive the worker."""
    family = stack.spawn("family", ["sh", "-c", "sleep 600 & echo $!"])
    assert family.wait(5) == 0
    left = int(family.log())
    assert is_alive(left) and "sleep" in command_line(left)
    assert family.kill_group()
    eventually(lambda: not is_alive(left), timeout=5)


def test_a_command_that_does_not_exist_is_an_error(stack: Stack) -> None:
    """And the guard goes on."""
    with pytest.raises(ServerFailed, match="nothing"):
        stack.spawn("nothing", ["/does/not/exist"])
    assert stack.spawn("true", ["true"]).wait(5) == 0


def test_closing_waits_for_an_orderly_end(tmp_path: Path) -> None:
    """Children get their grace after SIGTERM before anything is killed."""
    code = "trap 'sleep 0.5; echo finished; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    log = tmp_path / "log"
    with Stack(durable=False, postgres_url="unused", redis_url="unused") as stack:
        child = stack.spawn("slow", ["sh", "-c", code], log_path=log)
        eventually(lambda: "ready" in child.log(), timeout=5)
    assert "finished" in log.read_text()


def test_a_child_of_a_closed_stack_reaches_nothing(tmp_path: Path) -> None:
    """The numbers of its pipes may be those of other files by then."""
    with Stack(durable=False, postgres_url="unused", redis_url="unused") as stack:
        child = stack.spawn("sleeper", ["sleep", "600"])
    with contextlib.ExitStack() as opened:
        others = [opened.enter_context(open(tmp_path / str(n), "w+b")) for n in range(20)]
        for use in (child.poll, child.kill_group):
            with pytest.raises(ServerFailed, match="ended"):
                use()
        assert [os.fstat(other.fileno()).st_size for other in others] == [0] * 20
    assert not is_alive(child.pid)


def test_a_guard_that_is_told_to_end_is_not_held_up_by_a_request(tmp_path: Path) -> None:
    """SIGTERM comes while it waits for one, and the request right after."""
    link = GuardLink(tmp_path / "guard.log")
    child = link.spawn("sleeper", ["sleep", "600"], tmp_path / "log")
    os.kill(link.pid, signal.SIGTERM)
    with contextlib.suppress(ServerFailed):
        child.poll()
    assert eventually(lambda: not is_alive(link.pid) and not is_alive(child.pid), timeout=5)
    link.close(grace=0)


def test_given_servers_are_used_and_none_started() -> None:
    """`fleet up` with the addresses of real servers still owns its workers."""
    with Stack(postgres_url="postgresql://db", redis_url="redis://broker") as stack:
        assert (stack.postgres_url, stack.redis_url) == ("postgresql://db", "redis://broker")
        assert [ln for ln in running_under(stack.data_dir) if "guard.py" not in ln] == []


def test_settings_read_what_a_stack_publishes(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only we can read the file, which holds the password."""
    from infra.settings import Settings

    path = stack.publish(shop_url="http://127.0.0.1:1")
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("FLEET_DATA_DIR", str(stack.data_dir))
    monkeypatch.chdir(stack.data_dir)
    settings = Settings()
    assert settings.postgres_url == stack.postgres_url
    assert settings.redis_url == stack.redis_url
    assert settings.shop_url == "http://127.0.0.1:1"
