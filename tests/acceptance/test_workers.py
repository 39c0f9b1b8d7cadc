"""Worker processes as operators meet them: Celery's commands, Flower, SIGTERM, refused starts."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.devservers import Child, Stack
from producers import Fleet
from tests.acceptance.pooler import TransactionPooler
from tests.acceptance.standing import Standing, crashes, holder, standing, start
from tests.harness import Broker, Database, Databases, Shop, clean_environment, eventually
from tests.warm_commands import CELERY, run
from tests.worker_processes import Workers

WORKERS = (*CELERY, "-A", "workers")


@pytest.fixture(scope="module")
def one_worker(
    databases: Databases, stack: Stack, _shop: Shop, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    with standing(databases, stack, _shop, tmp_path_factory.mktemp("workers")) as made:
        made.start(1, concurrency=1)
        yield made


@pytest.fixture
def it(one_worker: Standing, shop: Shop) -> Standing:
    return one_worker


def held(shop: Shop, fleet: Fleet, user_id: str = "u_42") -> str:
    """An order whose refund has been made, with the reply kept back; its turn is under way."""
    order = shop.new_order()
    shop.fault("refunds", "hold_after", order_id=order)
    fleet.submit("refund", order, {"user_id": user_id})
    eventually(lambda: shop.held(order))
    return order


def environment(it: Standing, **more: str) -> dict[str, str]:
    settings = {"postgres_url": it.database.url, "redis_url": it.broker.url}
    return clean_environment(**settings) | more


# Celery's own commands


@pytest.mark.parametrize("method", ["active", "ping"])
def test_celery_inspects_a_worker_while_a_turn_runs(it: Standing, method: str) -> None:
    """`celery -A workers inspect` is answered, and names the running turn by its thread."""
    order = held(it.shop, it.fleet)
    (worker,) = it.workers
    argv = [*WORKERS, "inspect", method, "--json", "--timeout", "10", "--destination", worker.name]
    done = run(argv, env=environment(it), cwd=it.once.parent, timeout=30)
    it.shop.release(order)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)[worker.name]
    if method == "ping":
        assert answer == {"ok": "pong"}
    else:
        (task,) = answer
        assert (task["name"], task["args"]) == ("fleet.turns", [f"refund:{order}"])
    it.ends(f"refund:{order}")


# Flower

USER = ("fleet", "a password of the test")


@pytest.fixture(scope="module")
def flower(one_worker: Standing, stack: Stack) -> Iterator[httpx.Client]:
    """Flower, started as the README says; a client that sends no password by itself."""
    env = environment(one_worker, FLOWER_BASIC_AUTH=":".join(USER))
    argv = [*WORKERS, "flower", "--address=127.0.0.1", "--port=0"]
    child = stack.spawn("flower", argv, env, cwd=one_worker.once.parent)
    found = eventually(lambda: _address(child), 20, interval=0.05)
    with httpx.Client(base_url=found, timeout=10) as client:
        yield client
    child.kill_group()


def _address(child: Child) -> str | None:
    assert child.poll() is None, child.log()
    found = re.search(r"Visit me at (http://127\.0\.0\.1:\d+)", child.log())
    return found and found[1]


def test_flower_shows_turns_by_thread_id_and_outcome(it: Standing, flower: httpx.Client) -> None:
    """Its API names the thread in the task's arguments and what was done in the result."""

    def shown() -> dict[str, Any] | None:
        # Flower asks the workers for events when it has found them: not at once.
        order = it.order()
        it.ends(f"refund:{order}")
        tasks = flower.get("/api/tasks", auth=USER).json().values()
        found = [t for t in tasks if t["state"] == "SUCCESS" and order in (t["args"] or "")]
        return found[0] | {"order": order} if found else None

    task = eventually(shown, 20, interval=0.2)
    thread = f"refund:{task['order']}"
    assert (task["name"], task["args"]) == ("fleet.turns", f"('{thread}',)")
    assert f"'thread_id': '{thread}'" in task["result"]
    assert "'outcome': 'done'" in task["result"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/tasks"),
        ("GET", "/api/workers"),
        ("GET", "/"),
        ("GET", "/workers"),
        ("POST", "/api/worker/shutdown/w@test"),
        ("POST", "/api/task/async-apply/fleet.turns"),
    ],
)
def test_flower_lets_nobody_in_without_the_password(
    flower: httpx.Client, method: str, path: str
) -> None:
    """401 without one and with a wrong one, for the API and for its pages."""
    for auth in (None, (USER[0], "wrong")):
        assert flower.request(method, path, auth=auth).status_code == 401


# SIGTERM


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_sigterm_ends_a_turn_after_its_superstep(
    pool: str, fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """Its slot is free within a second, nothing counts as a crash, another worker goes on,
    and each effect has happened once."""
    start(workers, 2, pool=pool, concurrency=1)
    order = held(shop, fleet, user_id := f"u_{pool}_{time.time_ns()}")
    leaving = holder(database, workers, order)
    epoch = database.value("SELECT epoch FROM fleet.threads WHERE key = %s", order)
    leaving.child.terminate()
    eventually(lambda: "Warm shutdown" in leaving.log())
    assert leaving.child.poll() is None

    shop.release(order)
    began = time.monotonic()
    # The other worker's claim needs the thread's lock, which the first one has given up.
    eventually(
        lambda: database.value("SELECT epoch FROM fleet.threads WHERE key = %s", order) > epoch
    )
    assert time.monotonic() - began < 1
    assert leaving.child.wait(10) == 0
    status = fleet.wait(f"refund:{order}", 10)
    assert (status.status, status.epoch) == ("done", epoch + 1)
    assert crashes(database, order) == [0]
    assert (shop.refunds(order), shop.calls("refunds", order)) == (1, 1)
    assert shop.calls("notifications", user_id) == 1
    assert leaving.name not in [n for (n,) in database.fetch("SELECT worker FROM fleet.workers")]


def test_sigterm_ends_a_pause_between_two_tries(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """The slot is free within a second; nothing counts as a crash or a failure."""
    leaving = workers.start(concurrency=1)
    order = shop.new_order()
    shop.fault("refunds", "busy_429", order_id=order, retry_after=25)
    thread = fleet.submit("refund", order, {"user_id": "u_42"}).thread_id
    eventually(lambda: shop.calls("refunds", order) == 1)
    running = "SELECT status = 'running' FROM fleet.threads WHERE thread_id = %s"
    assert database.value(running, thread)
    leaving.child.terminate()
    eventually(lambda: "Warm shutdown" in leaving.log())
    began = time.monotonic()
    eventually(lambda: not database.value(running, thread))
    assert time.monotonic() - began < 1
    assert leaving.child.wait(10) == 0
    left = "SELECT status, crashes, failures FROM fleet.messages WHERE thread_id = %s"
    assert database.fetch(left, thread) == [("pending", 0, 0)]
    assert shop.calls("refunds", order) == 1


# Starts that are refused


def refusal(folder: Path, *args: str, path: Path | None = None, **settings: Any) -> str:
    """What a worker says when it refuses to start: one line, and exit code 1."""
    env = clean_environment(**settings)
    if path is not None:
        env["PYTHONPATH"] += f":{path}"
    done = run([*WORKERS, "worker", "--concurrency", "1", *args], env=env, cwd=folder, timeout=30)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and done.stderr.rstrip().endswith(errors[0])
    return errors[0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"postgres_url": "postgresql://x@127.0.0.1:1/x"}, "Postgres is not reachable.*fleet up"),
        ({"redis_url": None}, "No address of the broker.*fleet up"),
        ({"redelivery": "1"}, "FLEET_REDELIVERY .*Did you mean FLEET_REDELIVERY_AFTER"),
        ({"queue": "my queue"}, "FLEET_QUEUE has a value 'my queue'.*Correct FLEET_QUEUE"),
        ({"failpoints": "a.b=kill,c.d=kill"}, "FLEET_FAILPOINTS has the entry .*cannot be read"),
        ({"graphs_file": "mine.json"}, "mine.json does not exist.*FLEET_GRAPHS_FILE"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_worker_refuses_settings_it_can_not_work_with(
    settings: dict[str, Any], said: str, fleet_settings: dict[str, Any], tmp_path: Path
) -> None:
    """One sentence with what to do, no traceback, exit code 1."""
    assert re.search(said, refusal(tmp_path, **fleet_settings | settings))


def test_a_worker_refuses_a_database_without_migrations(
    empty_database: Database, broker: Broker, tmp_path: Path
) -> None:
    """And says which command brings them."""
    said = refusal(tmp_path, postgres_url=empty_database.url, redis_url=broker.url)
    assert "lacks" in said and "fleet migrate" in said


def test_a_worker_refuses_a_database_that_it_may_not_use(
    database: Database, fleet_settings: dict[str, Any], tmp_path: Path
) -> None:
    """A role without rights on our tables: Postgres' own words, and no worker unchecked."""
    database.fetch("DROP ROLE IF EXISTS nobody_here")
    database.fetch("CREATE ROLE nobody_here LOGIN PASSWORD 'x'")
    url = re.sub("//[^@]*@", "//nobody_here:x@", database.url)
    said = refusal(tmp_path, **fleet_settings | {"postgres_url": url})
    assert "permission denied" in said and "FLEET_POSTGRES_URL" in said


@pytest.mark.parametrize("takes_options", [True, False])
def test_a_worker_refuses_a_transaction_pooler(
    takes_options: bool, database: Database, broker: Broker, tmp_path: Path
) -> None:
    """Whether it ignores our session's options, as many are told to, or refuses them."""
    with TransactionPooler(database.url, takes_options=takes_options) as pooler:
        said = refusal(tmp_path, postgres_url=pooler.url, redis_url=broker.url)
    assert "transaction pooler" in said and "FLEET_POSTGRES_URL" in said


@pytest.mark.parametrize("pool", ["gevent"])
def test_a_worker_refuses_a_greenlet_pool(
    pool: str, fleet_settings: dict[str, Any], tmp_path: Path
) -> None:
    """With the reason, and which pools there are. The library is stood in for by one that
    patches nothing: where it is missing, Celery itself ends before it loads our code."""
    package = tmp_path / "greenlets" / pool
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "class Timeout(Exception): ...\nclass GreenletExit(BaseException): ...\n"
        "def monkey_patch(): ...\n"
    )
    for module in ("monkey", "signal", "debug", "greenthread"):
        (package / f"{module}.py").write_text("def patch_all(): ...\n")
    said = refusal(tmp_path, "--pool", pool, path=package.parent, **fleet_settings)
    assert f"the {pool} pool" in said and "--pool prefork" in said and "--pool threads" in said
