"""`fleet doctor` on real servers: what it says of a fleet that is well, and of each problem."""

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from producers.doctor import broker as broker_checks
from producers.doctor import database as database_checks
from producers.doctor import machine, work
from producers.operated import WorkerRow
from tests.acceptance.pooler import TransactionPooler
from tests.harness import ROOT, Broker, Database, write_graphs
from tests.integration.mailbox import INPUT, nobody


@dataclass(frozen=True)
class Report:
    """What `fleet doctor --json` printed."""

    code: int
    out: str
    err: str

    @property
    def checks(self) -> dict[str, Any]:
        """Findings by their check; of several the first that is no ok."""
        found: dict[str, Any] = {}
        for finding in json.loads(self.out)["checks"]:
            if found.get(finding["check"], {"level": "ok"})["level"] == "ok":
                found[finding["check"]] = finding
        return found

    def level(self, check: str) -> str:
        return str(self.checks[check]["level"])

    def problem(self, check: str) -> Any:
        """The finding, which must be a problem that comes with its fix."""
        found = self.checks[check]
        assert (self.code, found["level"]) == (1, "problem") and found["fix"], found
        assert json.loads(self.out)["ok"] is False
        return found


Doctor = Callable[..., Report]


@pytest.fixture
def doctor(
    settings_env: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Doctor:
    """Runs the command in this process, with the test's settings."""

    def run(*args: str, **settings: str) -> Report:
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        for name, value in settings.items():
            monkeypatch.setenv(f"FLEET_{name.upper()}", value)
        get_settings.cache_clear()
        capfd.readouterr()
        code = main(["doctor", "--json", *args])
        captured = capfd.readouterr()
        return Report(code, captured.out, captured.err)

    return run


@pytest.fixture
def kept(stack: Any) -> Any:
    """The session's broker keeps what it is given, for this test."""
    client = redis.Redis.from_url(stack.redis_url, socket_timeout=5)
    client.config_set("appendonly", "yes")
    yield client
    client.config_set("appendonly", "no")
    client.config_set("maxmemory-policy", "noeviction")
    client.close()


def alive(database: Database, queue: str = "fleet") -> None:
    """A worker that has just said that it is there."""
    database.fetch(
        """INSERT INTO fleet.workers (worker, queues, slots, wakeups, pool, started_at, seen_at)
        VALUES ('w@h', ARRAY[%s], 4, 16, 'prefork', fleet.now(), fleet.now())""",
        queue,
    )


def test_a_fleet_that_is_well_passes(doctor: Doctor, database: Database, kept: Any) -> None:
    """But for the test server's fsync, which is off: exit code 0 without that."""
    alive(database)
    found = doctor()
    bad = {c: f["said"] for c, f in found.checks.items() if f["level"] != "ok"}
    assert bad.keys() <= {"durability"}, bad
    assert found.err == ""
    expected = {"python", "packages", "postgres", "direct connection", "clock", "migrations"}
    expected |= {"fleet clock", "table sizes", "sessions", "broker", "eviction", "persistence"}
    expected |= {"dead threads", "threads in doubt", "incompatible threads", "workers", "mail"}
    assert expected | {"graphs", "unprotected nodes", "foreign messages"} <= found.checks.keys()


def test_doctor_for_people_names_levels_and_fixes(
    settings_env: None, database: Database, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line per check, a line per fix, and a sum."""
    assert main(["doctor"]) == 1
    out = capfd.readouterr().out
    assert "ok       migrations: None is missing." in out
    assert "problem  workers: No worker takes turns." in out
    assert "fix: Start one: `celery -A workers worker`" in out
    assert "Problems: " in out.splitlines()[-1]


def test_servers_that_are_down_are_one_problem_each(doctor: Doctor) -> None:
    """What depends on them is left out."""
    with nobody() as port:
        found = doctor(
            postgres_url=f"postgresql://x@127.0.0.1:{port}/x",
            redis_url=f"redis://127.0.0.1:{port}/0",
        )
    found.problem("postgres")
    found.problem("broker")
    assert not found.checks.keys() & {"migrations", "workers", "eviction", "table sizes"}
    assert found.level("python") == "ok"


def test_missing_addresses_are_problems(doctor: Doctor) -> None:
    """With how to get them."""
    found = doctor(postgres_url="", redis_url="")
    assert "FLEET_POSTGRES_URL" in found.problem("postgres")["fix"]
    assert "FLEET_REDIS_URL" in found.problem("broker")["fix"]


def test_a_transaction_pooler_is_a_problem(doctor: Doctor, database: Database) -> None:
    """Its locks do not hold."""
    with TransactionPooler(database.url, takes_options=True) as pooler:
        found = doctor(postgres_url=pooler.url)
    assert "transaction pooler" in found.problem("direct connection")["said"]


def test_missing_migrations_are_a_problem(doctor: Doctor, empty_database: Database) -> None:
    """Before a deploy they are to be expected: a warning."""
    found = doctor(postgres_url=empty_database.url)
    assert "0001_tables.sql" in found.problem("migrations")["data"]["pending"]
    assert "fleet migrate" in found.checks["migrations"]["fix"]
    assert found.level("work") == "note"
    before = doctor("--before-deploy", postgres_url=empty_database.url)
    assert before.level("migrations") == "warning"
    assert before.level("deploy") == "note"


def test_a_moved_clock_is_a_problem(doctor: Doctor, database: Database) -> None:
    """Tests move it; nothing else should."""
    database.fetch("SELECT fleet.move_clock('1 hour')")
    assert "3600 s" in doctor().problem("fleet clock")["said"]


@pytest.mark.parametrize(
    ("apart", "unsure", "level"),
    [(0.2, 0.1, "ok"), (-2, 0.1, "warning"), (60, 0.1, "problem"), (6, 5.5, "ok")],
)
def test_clocks_may_be_apart_a_little(apart: float, unsure: float, level: str) -> None:
    """As far as the time of the question allows to say."""
    assert database_checks.clock(apart, unsure).level == level


@pytest.mark.parametrize(
    ("table", "level"),
    [
        (("fleet.messages", 1 << 20, 10, 10, 0), "ok"),
        (("fleet.messages", 30 << 30, 10, 10, 0), "warning"),
        (("checkpoints", 300 << 30, 10, 10, 0), "problem"),
        (("fleet.effects", 1 << 30, 10, 1000, 900_000), "warning"),
    ],
)
def test_tables_may_be_large_up_to_a_limit(table: Any, level: str) -> None:
    """By bytes, and by rows that are dead; the fix says what to do."""
    found = database_checks.sizes([table, ("fleet.graphs", 8192, 1, 1, 0)])
    assert found.level == level and (level == "ok" or (table[0] in found.said and found.fix))


def test_checkpoints_in_two_schemas_are_a_warning(doctor: Doctor, database: Database) -> None:
    """Which of them a process sees depends on its user."""
    assert doctor().level("checkpoints") == "ok"
    database.fetch("CREATE SCHEMA other")
    database.fetch("CREATE TABLE other.checkpoints ()")
    found = doctor().checks["checkpoints"]
    assert found["level"] == "warning" and "other" in found["said"] and found["fix"]


def test_sessions_that_run_out_are_a_warning() -> None:
    """A slot without one serves nobody."""
    assert database_checks.sessions(10, 97).level == "ok"
    assert database_checks.sessions(90, 97).level == "warning"


def test_a_broker_that_evicts_is_a_problem(doctor: Doctor, kept: Any) -> None:
    """Whatever the policy, if it is not noeviction."""
    kept.config_set("maxmemory-policy", "allkeys-lru")
    found = doctor()
    assert "allkeys-lru" in found.problem("eviction")["said"]
    assert "noeviction" in found.checks["eviction"]["fix"]
    assert found.level("persistence") == "ok"


def test_a_broker_without_persistence_is_a_problem(doctor: Doctor) -> None:
    """The session's keeps nothing, as tests want it."""
    assert "appendonly yes" in doctor().problem("persistence")["fix"]


@pytest.mark.parametrize(
    ("info", "saves", "level"),
    [
        ({"aof_enabled": 1}, False, "ok"),
        ({"aof_enabled": 0}, True, "warning"),
        ({"aof_enabled": 0}, None, "warning"),
        ({"aof_enabled": 0}, False, "problem"),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, True, "problem"),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, True, "problem"),
    ],
)
def test_persistence_has_degrees(info: Any, saves: bool | None, level: str) -> None:
    """Append-only file, snapshots, or nothing; and whether writing works."""
    assert broker_checks.persistence(info, saves).level == level


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"redis_version": "7.2.4", "role": "master"}, "ok"),
        ({"redis_version": "7.2.4", "redis_mode": "cluster"}, "problem"),
        ({"redis_version": "7.2.4", "role": "slave"}, "problem"),
    ],
)
def test_a_broker_that_takes_no_writes_is_a_problem(info: Any, level: str) -> None:
    """As a replica, or a cluster, which Celery does not speak to."""
    assert broker_checks.server(info).level == level


def test_a_full_broker_is_a_warning() -> None:
    """From four fifths of its memory on."""
    info = {"maxmemory_policy": "noeviction", "maxmemory": 100, "used_memory": 90}
    assert broker_checks.eviction(info).level == "warning"
    assert broker_checks.eviction({}).level == "note"


@pytest.mark.parametrize(
    ("status", "check", "fix"),
    [
        ("failed", "dead threads", "fleet retry"),
        ("in_doubt", "threads in doubt", "fleet resolve"),
        ("incompatible", "incompatible threads", "fleet amend"),
    ],
)
def test_threads_that_wait_for_somebody_are_named(
    status: str, check: str, fix: str, doctor: Doctor, fleet: Fleet, database: Database
) -> None:
    """With what to do about them."""
    fleet.submit("refund", "A1", INPUT)
    database.fetch("UPDATE fleet.threads SET status = %s", status)
    found = doctor().problem(check)
    assert "refund:A1" in found["said"] and fix in found["fix"]
    assert found["data"] == {"number": 1, "threads": ["refund:A1"]}


def test_mail_that_no_worker_takes_is_a_problem(
    doctor: Doctor, fleet: Fleet, database: Database
) -> None:
    """Because there is none, or it serves other queues."""
    fleet.submit("refund", "A1", INPUT)
    found = doctor()
    assert "messages due: 1" in found.problem("workers")["said"]
    assert "fleet (1)" in found.problem("mail")["said"]
    alive(database, "other")
    again = doctor()
    assert again.level("workers") == "ok"
    again.problem("mail")


def worker(silent_for: float) -> WorkerRow:
    return WorkerRow(
        worker=f"w{silent_for}@h",
        queues=["fleet"],
        slots=4,
        pool="prefork",
        started_at="2026-01-01T00:00:00Z",
        seen_at="2026-01-01T00:00:00Z",
        silent_for=silent_for,
        silent=silent_for > 30,
        draining=False,
        drain_requested=False,
    )


def test_a_silent_worker_is_a_warning_beside_a_living_one() -> None:
    """Alone it is none."""
    assert work.alive([worker(1)], 0).level == "ok"
    assert work.alive([worker(1), worker(300)], 0).level == "warning"
    assert work.alive([worker(300)], 0).level == "problem"


def test_mail_that_waits_long_is_a_warning() -> None:
    """There are too few slots."""
    assert work.mail([("fleet", 5, 3.0)], [worker(1)]).level == "ok"
    assert work.mail([("fleet", 5, 300.0)], [worker(1)]).level == "warning"


def test_foreign_messages_are_a_warning(doctor: Doctor, database: Database) -> None:
    """Somebody else uses the queue."""
    database.fetch(
        "INSERT INTO fleet.rejected_wakeups (at, reason, body) VALUES (fleet.now(), 'r', 'b')"
    )
    assert doctor().level("foreign messages") == "warning"


def test_versions_are_compared_with_what_was_tested() -> None:
    """Python's, and each package's with the distribution's requirements."""
    assert machine.python((3, 11)).level == "ok"
    assert machine.python((3, 10)).level == machine.python((3, 15)).level == "problem"
    assert machine.packages().level == "ok"
    assert machine.packages("no-such-distribution").level == "problem"


def test_graphs_are_read_and_a_broken_one_stops_no_other(doctor: Doctor, tmp_path: Path) -> None:
    """An unprotected call is a problem, with node, line and the modules that were read."""
    calling = str(ROOT / "tests/graphs/calling.py")
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    graphs = write_graphs(
        tmp_path, calling=f"{calling}:graph", broken="./broken.py:graph", clean=f"{calling}:clean"
    )
    found = doctor(graphs_file=str(graphs))
    assert "no_such_module" in found.problem("graphs")["said"]
    unprotected = found.problem("unprotected nodes")
    (call,) = unprotected["data"]["calls"]
    assert (call["call"], call["nodes"]) == ("httpx.post(…)", ["calling/by_module"])
    assert "effect" in unprotected["fix"]
    assert unprotected["data"]["modules"] == [call["module"]]


def test_a_missing_graphs_file_is_a_problem(doctor: Doctor, tmp_path: Path) -> None:
    """It is named."""
    found = doctor(graphs_file=str(tmp_path / "none.json"))
    assert "none.json" in found.problem("graphs")["said"]


def test_before_a_deploy_threads_that_would_be_left_behind_are_listed(
    doctor: Doctor, fleet: Fleet, database: Database
) -> None:
    """Those of a node that this checkout has not; without the option nobody looks."""
    assert "deploy" not in doctor().checks
    assert doctor("--before-deploy").level("deploy") == "ok"
    fleet.submit("refund", "A1", INPUT)
    stand_at(database, "refund:A1", "ask_the_boss")
    found = doctor("--before-deploy").problem("deploy")
    assert "refund:A1" in found["said"] and "ask_the_boss" in found["said"]
    assert [t["thread_id"] for t in found["data"]["threads"]] == ["refund:A1"]


def stand_at(database: Database, thread: str, node: str) -> None:
    """A checkpoint whose next node is this one, of a graph that had it."""
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    channel = f"branch:to:{node}"
    versions: dict[str, str | int | float] = {channel: "1"}
    with database.connect(row_factory=dict_row) as conn:
        PostgresSaver(conn).put(
            {"configurable": {"thread_id": thread, "checkpoint_ns": ""}},
            {**empty_checkpoint(), "channel_values": {channel: None}, "channel_versions": versions},
            {},
            versions,
        )
    database.fetch(
        """UPDATE fleet.threads SET status = 'waiting', fingerprint = jsonb_build_object(
            'nodes', jsonb_build_array(%s::text, 'load_order')) WHERE thread_id = %s""",
        node,
        thread,
    )


def test_doctor_changes_nothing(
    doctor: Doctor, fleet: Fleet, database: Database, broker: Broker
) -> None:
    """Not one row, and no key on the broker."""
    fleet.submit("refund", "A1", INPUT)

    def everything() -> Any:
        tables = database.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'fleet'")
        rows = {
            t: database.fetch(f"SELECT t::text FROM fleet.{t} AS t ORDER BY 1") for (t,) in tables
        }
        return rows, sorted(broker.client.keys()), broker.client.lrange("fleet", 0, -1)

    before = everything()
    doctor("--before-deploy")
    assert everything() == before


def test_an_unknown_option_is_usage(settings_env: None, capfd: pytest.CaptureFixture[str]) -> None:
    """One line, exit code 2."""
    assert main(["doctor", "--befor-deploy"]) == 2
    assert capfd.readouterr().err.startswith("error: ")
