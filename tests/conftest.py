"""Fixtures: one set of servers per session, one database and broker per test."""

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from signal import SIGHUP, SIGINT
from typing import Any
from urllib.parse import urlsplit

import psutil
import psycopg
import pytest
import redis
from psycopg import sql

from infra.devservers import Stack
from infra.event_stream import AUDIENCE
from infra.settings import get_settings
from infra.valkey_server import DATABASES
from tests.harness import ROOT, Broker, Database, Databases, Shop
from tests.worker_processes import WarmStack, Workers

_broker_numbers = itertools.count()

_MEMORY, _FOLDER = Path("/dev/shm"), "threadfleet-tests-"
#: Bytes that four sessions at once keep there, with much to spare.
_ROOM = 6 << 30


def pytest_configure(config: pytest.Config) -> None:
    """Tests use the servers that they start, whatever the caller's environment names."""
    _use_memory()
    for name in [name for name in os.environ if name.startswith("FLEET_")]:
        del os.environ[name]
    # Ignored by a shell's background job, or under nohup, they would be so in each process
    # that a test means to end by them.
    for number, handler in (SIGINT, signal.default_int_handler), (SIGHUP, signal.SIG_DFL):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def _use_memory() -> None:
    """Temporary files go into memory: each test's database is some hundred files."""
    usable = "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK)
    if usable and shutil.disk_usage(_MEMORY).free >= _ROOM:
        ours = _MEMORY / f"{_FOLDER}{os.getpid()}"
        for folder in _MEMORY.glob(f"{_FOLDER}*"):
            pid = folder.name.removeprefix(_FOLDER)
            if pid.isdigit() and (folder == ours or not psutil.pid_exists(int(pid))):
                shutil.rmtree(folder, ignore_errors=True)
        # Servers that run as another user have folders in it.
        ours.mkdir(mode=0o755)
        os.environ["TMPDIR"] = str(ours)
        tempfile.tempdir = None


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """What a failed test has left is kept until the next run."""
    folder = _MEMORY / f"{_FOLDER}{os.getpid()}"
    if exitstatus == 0 and folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Postgres and broker of this session, gone with everything in them afterwards."""
    with WarmStack(durable=False) as stack:
        _make_logins_cheap(stack.postgres_url)
        yield stack


def _make_logins_cheap(url: str) -> None:
    """Hashing a password 4096 times is most of what a session costs, here and on the server."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SET scram_iterations = 1")
        role, password = urlsplit(url).username or "", urlsplit(url).password
        change = sql.SQL("ALTER ROLE {} PASSWORD {}")
        conn.execute(change.format(sql.Identifier(role), sql.Literal(password)))


@pytest.fixture(scope="session")
def databases(stack: Stack) -> Iterator[Databases]:
    """Clones databases from a template with migrations and graphs."""
    from graphs.registry import Registry
    from infra.migrate import migrate

    graphs = Registry.load(ROOT / "langgraph.json").described()
    databases = Databases(stack.postgres_url, lambda url: migrate(url, graphs))
    yield databases
    databases.close()


@pytest.fixture
def database(databases: Databases) -> Iterator[Database]:
    """A migrated database of the test's own."""
    database = databases.create()
    yield database
    databases.drop(database)


@pytest.fixture
def empty_database(databases: Databases) -> Iterator[Database]:
    """A database without migrations."""
    database = databases.create(migrated=False)
    yield database
    databases.drop(database)


@pytest.fixture
def broker(stack: Stack) -> Iterator[Broker]:
    """A Redis database of the test's own, empty but for the word that somebody reads events."""
    number = next(_broker_numbers) % DATABASES
    url = urlsplit(stack.redis_url)._replace(path=f"/{number}").geturl()
    client = redis.Redis.from_url(url, socket_timeout=5)
    client.flushdb()
    client.set(AUDIENCE, 0)
    yield Broker(url, client)
    client.close()


@pytest.fixture(scope="session")
def _shop(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    shop = Shop(stack, tmp_path_factory.mktemp("shop"))
    yield shop
    shop.close()


@pytest.fixture
def shop(_shop: Shop) -> Iterator[Shop]:
    """The shop without faults; its books are those of the whole session."""
    _shop.reset()
    yield _shop
    _shop.reset()


@pytest.fixture
def fleet_settings(
    request: pytest.FixtureRequest, database: Database, broker: Broker, tmp_path: Path
) -> dict[str, Any]:
    """Settings of the test's processes: its servers, and the shop if the test has it."""
    settings: dict[str, Any] = {
        "postgres_url": database.url,
        "redis_url": broker.url,
        "data_dir": tmp_path / "data",
    }
    if "shop" in request.fixturenames:
        settings["shop_url"] = request.getfixturevalue("shop").url
    return settings


@pytest.fixture
def settings_env(
    monkeypatch: pytest.MonkeyPatch, fleet_settings: dict[str, Any], tmp_path: Path
) -> Iterator[None]:
    """The test's settings in this process too, with nothing read from the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, value in fleet_settings.items():
        monkeypatch.setenv(f"FLEET_{name.upper()}", str(value))
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.fixture
def fleet(database: Database, broker: Broker) -> Iterator[Any]:
    """A client of the test's fleet."""
    from producers import Fleet

    with Fleet(database.url, broker.url) as fleet:
        yield fleet


@pytest.fixture
def workers(
    stack: Stack, database: Database, fleet_settings: dict[str, Any], tmp_path: Path
) -> Iterator[Workers]:
    """Starts Celery workers; those still running at the end are killed."""
    workers = Workers(stack, database, tmp_path, fleet_settings)
    yield workers
    workers.close()
