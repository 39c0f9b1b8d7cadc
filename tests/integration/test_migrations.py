"""Migrations of two releases beside each other: what waits, what is refused, what is left."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from infra import migrate as migrations
from infra.errors import DatabaseNewer, FleetError, MigrationsMissing, OlderWorkers
from infra.sql import scripts
from producers.cli import main
from tests.harness import ROOT, Database, eventually

POST = "9998_drop_it.post.sql"
BEAT = """INSERT INTO fleet.workers (worker, queues, slots, wakeups, pool, started_at, seen_at)
    VALUES (%s, '{fleet}', 2, 8, 'prefork', fleet.now(), fleet.now() - %s * interval '1 s')"""

Release = Callable[..., None]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    """Makes this code one that has other migrations: without some, and with these."""

    def change(without: tuple[str, ...] = (), **more: str) -> None:
        def changed(folder: str) -> list[tuple[str, str]]:
            found = scripts(folder)
            if folder != "migrations":
                return found
            added = [(name.replace("__", "."), text) for name, text in more.items()]
            return sorted([(n, t) for n, t in found if n[:4] not in without] + added)

        monkeypatch.setattr(migrations, "scripts", changed)

    return change


def with_post(release: Release) -> None:
    release(**{POST: "CREATE TABLE fleet.posted ()"})


def applied(database: Database) -> set[str]:
    return {name for (name,) in database.fetch("SELECT name FROM fleet.migrations")}


def check(database: Database) -> None:
    """What a worker of this code does before it starts."""
    with database.connect() as conn:
        migrations.require_migrated(conn)


def test_a_post_migration_waits_for_its_own_command(database: Database, release: Release) -> None:
    """Workers of the new release start without it."""
    with_post(release)
    assert migrations.migrate(database.url) == []
    check(database)
    with database.connect() as conn:
        assert migrations.left(conn) == [POST]
    assert migrations.migrate_post(database.url) == [POST]
    assert POST in applied(database) and migrations.migrate_post(database.url) == []


def test_a_post_migration_is_refused_while_older_workers_run(
    database: Database, release: Release
) -> None:
    """They are named; nothing is changed."""
    with_post(release)
    database.fetch(BEAT, "old@a", 5)
    with pytest.raises(OlderWorkers, match="old@a") as caught:
        migrations.migrate_post(database.url)
    assert caught.value.data["workers"] == ["old@a"] and POST not in applied(database)


def test_workers_that_are_gone_or_new_are_no_obstacle(database: Database, release: Release) -> None:
    """Gone: silent for half a minute. New: their code knows the migration."""
    with_post(release)
    database.fetch(BEAT, "gone@a", 31)
    database.fetch(BEAT, "new@a", 1)
    database.fetch("UPDATE fleet.workers SET schema = %s WHERE worker = 'new@a'", POST)
    assert migrations.migrate_post(database.url) == [POST]


def test_who_waits_for_another_migration_says_for_whom(
    database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a second on stderr, with the session that holds the lock; then it goes on."""
    heard = ""

    def said() -> bool:
        nonlocal heard
        heard += capfd.readouterr().err
        return "Another session migrates" in heard

    with database.connect(application_name="forgotten") as conn, ThreadPoolExecutor(1) as pool:
        conn.execute("SELECT pg_advisory_lock(hashtextextended('fleet.migrate', 3))")
        waiting = pool.submit(migrations.migrate, database.url)
        try:
            assert eventually(said)
        finally:
            conn.execute("SELECT pg_advisory_unlock_all()")
        assert waiting.result(10) == []
        assert f"backend {conn.info.backend_pid} (forgotten, from 127.0.0.1)" in heard


def test_post_migrations_need_the_others_first(
    empty_database: Database, database: Database, release: Release
) -> None:
    """They build on what the new release has."""
    release(**{POST: "SELECT 1", "9997_new.sql": "SELECT 1"})
    with pytest.raises(MigrationsMissing, match="9997_new"):
        migrations.migrate_post(database.url)
    with pytest.raises(FleetError):
        migrations.migrate_post(empty_database.url)


def test_an_older_release_leaves_a_newer_database_as_it_is(
    database: Database, release: Release
) -> None:
    """A release that is rolled back starts, and does not put its own functions back."""
    database.fetch("INSERT INTO fleet.migrations (name, hash) VALUES ('9996_future.sql', '')")
    database.fetch("UPDATE fleet.migrations SET hash = 'newer' WHERE name = 'functions'")
    assert migrations.migrate(database.url) == []
    assert database.value("SELECT hash FROM fleet.migrations WHERE name = 'functions'") == "newer"
    check(database)


def test_an_older_release_does_not_start_after_a_post_migration(database: Database) -> None:
    """What it needs may be gone; the sentence says which release to start."""
    database.fetch("INSERT INTO fleet.migrations (name, hash) VALUES ('9996_x.post.sql', '')")
    with pytest.raises(DatabaseNewer, match=r"9996_x\.post"):
        check(database)


def test_a_worker_of_the_release_before_can_announce_itself(database: Database) -> None:
    """Its statement has no schema; the row says that it is older than all."""
    database.fetch(BEAT, "old@a", 0)
    assert database.value("SELECT schema FROM fleet.workers") == ""


def test_the_command_says_what_is_left(
    database: Database,
    release: Release,
    settings_env: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    """Pre migrations now, post migrations by the command that it names."""
    monkeypatch.chdir(ROOT)
    with_post(release)
    assert main(["migrate"]) == 0
    assert f"{POST} waits" in capfd.readouterr().err
    database.fetch(BEAT, "old@a", 5)
    assert main(["migrate", "--post"]) == 1
    assert capfd.readouterr().err.startswith(f"error: {POST} is not for workers")
    database.fetch("DELETE FROM fleet.workers")
    assert main(["migrate", "--post", "--json"]) == 0
    assert POST in capfd.readouterr().out
