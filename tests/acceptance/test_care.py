"""A worker's logs, metrics, heartbeat and readiness, on real processes."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import httpx
import pytest

from infra import heartbeat
from infra.devservers import Stack
from infra.metrics import COUNTED, READ
from infra.ports import free_port
from tests.acceptance.standing import INPUT, Standing, standing
from tests.harness import Databases, Shop, clean_environment, eventually
from tests.warm_commands import FLEET, run
from tests.worker_processes import Worker

PHONE = "13812341234"


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def it(
    databases: Databases,
    stack: Stack,
    _shop: Shop,
    port: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Standing]:
    folder = tmp_path_factory.mktemp("care")
    settings = {"metrics_port": port, "heartbeat_file": folder / "heartbeat"}
    with standing(databases, stack, _shop, folder, **settings) as made:
        made.start(1)
        yield made


@pytest.fixture
def worker(it: Standing) -> Worker:
    (worker,) = it.workers
    return worker


def ready(it: Standing, *args: str, **settings: Any) -> tuple[int, dict[str, Any]]:
    """Exit code and data of `fleet ready`."""
    env = clean_environment(
        **{"postgres_url": it.database.url, "redis_url": it.broker.url}
        | {"heartbeat_file": it.once.parent / "heartbeat"}
        | settings
    )
    argv = [*FLEET, "ready", "--json", *args]
    done = run(argv, env=env, cwd=it.once.parent, timeout=30)
    return done.returncode, json.loads(done.stdout or done.stderr)


def page(port: int) -> dict[str, float]:
    """Samples of the metrics page; labels sorted by name."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


# Logs


def test_a_worker_logs_json_without_personal_data(it: Standing, worker: Worker) -> None:
    """Every line after Celery's banner; a phone number as a key is shown masked."""
    thread = it.fleet.submit("refund", PHONE, INPUT).thread_id
    it.fleet.wait(thread, 30)
    eventually(lambda: "refund:138****1234" in worker.log())
    written = worker.log().splitlines()
    begin = next(n for n, line in enumerate(written) if f"{worker.name} ready" in line)
    lines = [json.loads(line) for line in written[begin:]]
    assert PHONE not in worker.log()
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in lines)
    assert not any("HTTP Request" in line["event"] for line in lines)


def test_lines_of_a_turn_name_it(it: Standing, worker: Worker) -> None:
    """thread, message and epoch, as fields."""
    order = it.order()
    it.ends(f"refund:{order}")

    def line() -> dict[str, Any] | None:
        found = [json.loads(x) for x in worker.log().splitlines() if f"turn of refund:{order}" in x]
        return found[0] if found else None

    found = eventually(line)
    assert found is not None
    assert (found["thread"], found["message"]) == (f"refund:{order}", f"start-{order}")
    assert isinstance(found["epoch"], int)


# Metrics


def test_turns_effects_and_barriers_are_counted(it: Standing, port: int) -> None:
    """By graph, policy, purpose and outcome; over all processes of the pool."""

    def counted() -> dict[str, float]:
        return page(port)

    done = 'fleet_turn_duration_seconds_count{graph="refund",outcome="done"}'
    before = counted()
    for order in [it.order() for _ in range(4)]:
        it.ends(f"refund:{order}")
    after = eventually(lambda: (found := counted())[done] - before.get(done, 0.0) >= 4 and found)
    assert after[done] - before.get(done, 0.0) == 4
    effects = 'fleet_effects_total{outcome="done",policy="resend"}'
    assert after[effects] - before.get(effects, 0.0) == 8
    for kind in ("intent", "end"):
        name = f'fleet_barrier_duration_seconds_count{{kind="{kind}"}}'
        assert after[name] > before.get(name, 0.0)
    assert after["fleet_barrier_bytes_total"] > before.get("fleet_barrier_bytes_total", 0.0)


def test_the_page_shows_what_is_documented(it: Standing, port: int) -> None:
    """Names and types of what has been counted; no label with an id."""
    order = it.order()
    it.ends(f"refund:{order}")
    text = eventually(
        lambda: (
            (found := httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text)
            and "fleet_sweeper_leader 1" in found
            and found
        )
    )
    kinds = dict(re.findall(r"^# TYPE (fleet_\w+) (\w+)$", text, re.MULTILINE))
    known = {**COUNTED, **READ}
    assert kinds and all(known[name].kind == kind for name, kind in kinds.items())
    assert kinds.keys() >= READ.keys()
    assert order not in text and "fleet_sweeper_ticks_total" in kinds


def test_the_mailbox_is_on_the_page(it: Standing, port: int) -> None:
    """Pending messages and the age of the oldest due one, by queue."""
    it.database.fetch("UPDATE fleet.graphs SET queue = 'nobody'")
    order = it.order()
    it.database.fetch(
        "UPDATE fleet.messages SET available_at = now() - interval '60 s' WHERE thread_id = %s",
        f"refund:{order}",
    )
    found = page(port)
    it.database.fetch("UPDATE fleet.graphs SET queue = 'fleet'")
    it.database.fetch("UPDATE fleet.messages SET queue = 'fleet' WHERE status = 'pending'")
    assert found['fleet_mailbox_pending_messages{queue="nobody"}'] == 1
    assert found['fleet_mailbox_oldest_due_age_seconds{queue="nobody"}'] >= 60
    assert found['fleet_threads{status="idle"}'] >= 1
    it.ends(f"refund:{order}")


def test_a_lost_process_is_counted(it: Standing, worker: Worker, port: int) -> None:
    """And so is the wake-up for its thread."""
    order = it.shop.new_order()
    it.shop.fault("refunds", "hold_after", order_id=order)
    it.fleet.submit("refund", order, INPUT)
    eventually(lambda: it.shop.held(order))
    (pid,) = [
        pid
        for pid in worker.pool_pids()
        if f":{pid}:"
        in it.database.value(
            "SELECT owner FROM fleet.threads WHERE thread_id = %s", f"refund:{order}"
        )
    ]
    os.kill(pid, signal.SIGKILL)
    it.shop.release(order)
    it.ends(f"refund:{order}")
    found = page(port)
    assert found["fleet_worker_processes_lost_total"] >= 1
    assert found['fleet_sweeper_wakeups_total{reason="orphan"}'] >= 1


# Health


def test_a_worker_is_alive_and_ready(it: Standing, worker: Worker) -> None:
    """By its heartbeat, the servers it needs, and its own word."""
    found = heartbeat.read(it.once.parent / "heartbeat")
    assert found is not None and (found.worker, found.pid) == (worker.name, worker.pid)
    code, said = ready(it)
    assert code == 0, said
    assert [c["name"] for c in said["checks"]] == ["heartbeat", "postgres", "broker", "worker"]
    code, said = ready(it, "--live")
    assert code == 0 and [c["name"] for c in said["checks"]] == ["heartbeat"]


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"redis_url": "redis://127.0.0.1:1/0"}, "broker"),
        ({"postgres_url": "postgresql://fleet:pw@127.0.0.1:1/x"}, "postgres"),
        ({"heartbeat_file": "/nowhere/heartbeat"}, "heartbeat"),
    ],
)
def test_what_is_missing_is_named(it: Standing, settings: dict[str, str], name: str) -> None:
    """Exit code 1, and the check that failed; no password in it."""
    code, said = ready(it, **settings)
    assert code == 1 and said["ready"] is False
    assert [c["name"] for c in said["checks"] if not c["ok"]] == [name]
    assert "pw@" not in json.dumps(said)


def test_a_worker_that_nobody_knows_is_not_ready(it: Standing) -> None:
    """Its name is in the answer."""
    code, said = ready(it, "--worker", "w9@test", heartbeat_file=None)
    assert code == 1 and "w9@test" in said["checks"][-1]["detail"]


def test_live_needs_a_heartbeat_file(it: Standing) -> None:
    """A usage error says which setting."""
    code, said = ready(it, "--live", heartbeat_file=None)
    assert code == 2 and "FLEET_HEARTBEAT_FILE" in said["error"]["hint"]


def test_a_second_worker_on_the_port_works_without_a_page(it: Standing, port: int) -> None:
    """It says so; and what it leaves in the temporary folder goes with it."""
    second = it.workers.start(metrics_port=port, heartbeat_file=it.once.parent / "second")
    eventually(lambda: "there is no metrics page" in second.log())
    folders = [*Path(gettempdir()).glob(f"fleet-metrics-{second.pid}-*")]
    assert len(folders) == 1
    assert second.terminate() == 0
    assert not folders[0].exists() and not (it.once.parent / "second").exists()
    assert page(port)["fleet_sweeper_leader"] in (0, 1)
