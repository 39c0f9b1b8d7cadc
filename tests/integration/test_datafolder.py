"""A data folder that is not as it was left, or has an odd name: said in a sentence, or served."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from infra import folders
from infra.devservers import Stack
from infra.errors import DataDamaged, FleetError, ServerFailed, SettingsError
from infra.stackfile import stack_values
from tests.acceptance.commands import open_folder

LEFT_ALONE = ("password", "ports.json", "postgres/data/PG_VERSION", "valkey/appendonlydir")


@pytest.fixture(scope="module")
def left() -> Iterator[Path]:
    """A folder that a stack has left in order."""
    with open_folder() as base:
        with Stack(base / "data", durable=False) as stack:
            redis.Redis.from_url(stack.redis_url).set("kept", "42")
        yield base / "data"


@pytest.fixture
def folder(left: Path) -> Iterator[Path]:
    """A copy of it."""
    with open_folder() as base:
        shutil.copytree(left, base / "data", symlinks=True)
        for path in (left, *left.rglob("*")):
            copied = base / "data" / path.relative_to(left)
            os.chown(copied, path.stat().st_uid, path.stat().st_gid)
        yield base / "data"


def refused(folder: Path) -> FleetError:
    """The one sentence with which a start ends; what is on disk stays."""
    before = contents(folder)
    with pytest.raises(FleetError) as caught, Stack(folder, durable=False):
        pass
    assert "\n" not in str(caught.value) and caught.value.hint
    assert contents(folder) == before
    return caught.value


def contents(folder: Path) -> dict[str, bytes]:
    """What a person might want back."""
    found = {}
    for name in LEFT_ALONE:
        path = folder / name
        for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
            if file.is_file():
                found[str(file.relative_to(folder))] = file.read_bytes()
    return found


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"two words here", b"a@b:c/d?e"])
def test_a_damaged_password_file_is_told(folder: Path, content: bytes) -> None:
    """What is damaged and what to do; no server is started with it."""
    (folder / "password").write_bytes(content)
    error = refused(folder)
    assert isinstance(error, DataDamaged)
    assert f"{folder}/password is damaged" in str(error) and "operations.md" in str(error)


def test_a_lost_password_is_not_made_anew(folder: Path) -> None:
    """The database knows the old one."""
    (folder / "password").unlink()
    assert "password is damaged: it is not there" in str(refused(folder))


def test_a_password_of_another_database_is_told(folder: Path) -> None:
    """Postgres itself says so."""
    (folder / "password").write_text("of-another-database\n")
    error = refused(folder)
    assert "it is not the password of the database in" in str(error)


def test_a_lost_password_can_be_replaced_as_the_manual_says(folder: Path) -> None:
    """docs/operations.md: trust for one start, a new password, and back."""
    (folder / "password").write_text("a-new-password\n")
    access = folder / "postgres" / "data" / "pg_hba.conf"
    owner = access.stat()
    kept = access.read_text()
    access.write_text(kept.replace("scram-sha-256", "trust"))
    with (
        Stack(folder, durable=False, redis_url="unused") as stack,
        psycopg.connect(stack.postgres_url, autocommit=True) as conn,
    ):
        conn.execute("ALTER ROLE fleet PASSWORD 'a-new-password'")
    access.write_text(kept)
    assert access.stat().st_uid == owner.st_uid
    with Stack(folder, durable=False, redis_url="unused") as stack:
        psycopg.connect(stack.postgres_url).close()


@pytest.mark.parametrize("which", ["*.incr.aof", "*.base.rdb", "*.manifest"])
def test_a_damaged_file_of_the_broker_is_told(folder: Path, which: str) -> None:
    """With Valkey's own words, and that nothing accepted is lost with it."""
    (path,) = (folder / "valkey" / "appendonlydir").glob(which)
    path.write_bytes(b"garbage\n" + path.read_bytes())
    error = refused(folder)
    assert isinstance(error, DataDamaged)
    assert "appendonlydir is damaged: " in str(error) and "in Postgres" in str(error)
    (folder / "valkey" / "appendonlydir").rename(folder / "away")
    with Stack(folder, durable=False, postgres_url="unused") as stack:
        assert redis.Redis.from_url(stack.redis_url).ping()


def test_a_cluster_without_its_version_is_told(folder: Path) -> None:
    """It is not made anew."""
    (folder / "postgres" / "data" / "PG_VERSION").unlink()
    assert "PG_VERSION can't be read" in str(refused(folder))


def test_a_damaged_cluster_is_told_in_postgres_own_words(folder: Path) -> None:
    """With its log."""
    (folder / "postgres" / "data" / "global" / "pg_control").write_bytes(b"garbage")
    error = refused(folder)
    assert "Postgres did not start: " in str(error) and "postgres.log" in str(error)
    assert "HINT" not in str(error)


def test_a_file_in_a_folders_place_is_named(folder: Path) -> None:
    """The one that is in the way."""
    shutil.rmtree(folder / "logs")
    (folder / "logs").touch()
    assert f"({folder}/logs)" in str(refused(folder))


@pytest.mark.parametrize(
    "content",
    [b"postgres_url = ", b"\xff", b"pool = 3\n", b"redis_url = 7\n", b'shop_url = "ftp://x"\n'],
)
def test_a_damaged_stack_file_is_told(tmp_path: Path, content: bytes) -> None:
    """By every command; the file is no data, so it says to delete it."""
    path = tmp_path / "stack.toml"
    path.write_bytes(content)
    with pytest.raises(DataDamaged, match=r"stack\.toml is damaged: .*\. Delete it"):
        stack_values(path)
    assert path.read_bytes() == content


ODD = ["with space", "per%cent %s", "quote\"' $HOME `x` \\n", "données 数据", "-rf", "n" * 255]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_serves(name: str) -> None:
    """Both servers keep their data in it."""
    with open_folder() as base:
        for _ in range(2):
            with Stack(base / name, durable=False) as stack:
                psycopg.connect(stack.postgres_url).close()
                client = redis.Redis.from_url(stack.redis_url)
                assert client.incr("n") and Path(str(client.config_get("dir")["dir"])).parent == (
                    base / name
                )
        assert not [p for p in base.iterdir() if p.name != name]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("new\nline", "can't be printed"),
        ("bell\a", "can't be printed"),
        (os.fsdecode(b"by\xffte"), "can't be printed"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_name_that_will_not_do_is_told(tmp_path: Path, name: str, told: str) -> None:
    """Before anything is made."""
    stack = Stack(tmp_path / name, durable=False)
    with pytest.raises((SettingsError, ServerFailed), match=told) as caught, stack:
        pass
    assert str(caught.value).isprintable() and "FLEET_DATA_DIR" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoil", [lambda p: p.write_bytes(b"\xff\xfe"), lambda p: p.mkdir()])
def test_a_damaged_password_of_flower_can_be_made_anew(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    """Nothing was made with it."""
    path = tmp_path / "flower-password"
    spoil(path)
    with pytest.raises(DataDamaged, match="Delete it"):
        folders.password(path, "Delete it and start again: a new one is made.")
