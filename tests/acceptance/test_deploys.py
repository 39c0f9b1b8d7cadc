"""Two releases of a graph, of the wake-ups and of the schema beside each other, for real."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from graphs.registry import Registry
from infra import migrate as migrations
from infra.settings import get_settings
from producers import Fleet
from producers.wakeup import message
from tests.harness import ROOT, Broker, Database, Shop, eventually
from tests.previous_schema import migrate_to_previous, since
from tests.worker_processes import Worker, Workers
from workers.drain import drain
from workers.slot import Slot

RELEASES = ROOT / "tests/graphs/releases"


def release(workers: Workers, name: str, **options: Any) -> Worker:
    """A worker of that release of the graph."""
    return workers.start(graphs_file=RELEASES / name / "langgraph.json", **options)


def told(shop: Shop, name: str) -> list[str]:
    """What was told to the name, in order."""
    return [n["text"] for n in shop.books()["notifications"] if n["user_id"] == name]


def names(count: int, kind: str) -> list[str]:
    return [f"{kind}-{time.time_ns()}-{n}" for n in range(count)]


@pytest.fixture
def rolling(database: Database) -> None:
    database.register(RELEASES / "one" / "langgraph.json")


def begin(fleet: Fleet, name: str) -> str:
    return fleet.submit("rolling", name, {"name": name}).thread_id


def test_a_thread_at_a_node_of_the_new_release_waits_for_a_new_worker(
    rolling: None, fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """An old worker leaves it as it is, consumes nothing, and a new one goes on with it."""
    (name,) = names(1, "twice")
    two = release(workers, "two")
    thread = begin(fleet, name)
    for question in ("go on?", "really?"):
        found = fleet.wait(thread, 20)
        assert found.question is not None and found.question.payload == question
        if question == "go on?":
            fleet.answer(thread, None, "yes")
    two.terminate()
    release(workers, "one")
    fleet.answer(thread, None, "yes")
    found = fleet.wait(thread, 20)
    assert found.status == "incompatible" and "check" in (found.last_error or "")
    assert found.messages[-1].status == "pending"
    release(workers, "two")
    eventually(lambda: fleet.status(thread).status == "done", 20)
    assert told(shop, name) == ["checked", "told"]


def test_old_and_new_workers_side_by_side_end_every_thread_and_repeat_nothing(
    rolling: None, fleet: Fleet, shop: Shop, workers: Workers
) -> None:
    """Whichever release takes which turn, and whoever takes over from a worker that died."""
    one = release(workers, "one")
    release(workers, "two", failpoints="effect.after_call=kill")
    threads = {name: begin(fleet, name) for name in names(16, "side")}
    for thread in threads.values():
        assert fleet.wait(thread, 30).status == "waiting"
        fleet.answer(thread, None, "yes")
    for thread in threads.values():
        eventually(lambda t=thread: fleet.status(t).status == "done", 30)  # type: ignore[misc]
    assert workers.hits("effect.after_call"), "no worker of the new release died"
    for name in threads:
        assert told(shop, name) in (["told"], ["checked", "told"]), name
    assert one.child.poll() is None


def test_a_thread_that_old_workers_put_off_for_long_goes_on_seconds_after_a_deploy(
    rolling: None, fleet: Fleet, shop: Shop, database: Database, workers: Workers
) -> None:
    """Also where an old worker takes it first, and when the old one leaves."""
    (name,) = names(1, "twice-late")
    two = release(workers, "two")
    thread = begin(fleet, name)
    assert fleet.wait(thread, 20).question is not None
    fleet.answer(thread, None, "yes")
    eventually(lambda: (q := fleet.status(thread).question) and q.payload == "really?", 20)
    two.terminate()
    old = release(workers, "one", redelivery_after=300.0)
    fleet.answer(thread, None, "yes")
    assert fleet.wait(thread, 20).status == "incompatible"
    put_off = (
        "SELECT available_at > fleet.now() + interval '1 min' FROM fleet.messages ORDER BY seq"
    )
    assert database.fetch(put_off)[-1][0]
    old.terminate()
    assert not database.fetch(put_off)[-1][0]
    release(workers, "one")
    release(workers, "two")
    eventually(lambda: fleet.status(thread).status == "done", 20)
    assert told(shop, name) == ["checked", "told"]


def test_wake_ups_of_a_newer_release_lose_nothing(
    fleet: Fleet, broker: Broker, database: Database, shop: Shop, workers: Workers
) -> None:
    """An old worker says so once for each, sets none aside and serves the mail that is due."""
    worker = workers.start(concurrency=1)
    order = shop.new_order()
    for body in ([["refund:A", {"more": 1}], {"v": 2}, {}], [[], {"v": 3, "thread": "x"}, {}]):
        made = json.loads(message("fleet", "refund:A"))
        made["body"] = base64.b64encode(json.dumps(body).encode()).decode()
        broker.client.lpush("fleet", json.dumps(made))
    eventually(lambda: "version 3 is newer than this worker" in worker.log(), 20)
    assert "version 2 is newer than this worker" in worker.log()
    fleet.submit("refund", order, {"user_id": "u_42"})
    assert fleet.wait(f"refund:{order}", 20).status == "done"
    assert database.value("SELECT count(*) FROM fleet.rejected_wakeups") == 0
    assert "Traceback" not in worker.log()


def test_functions_are_made_anew_under_running_workers(
    fleet: Fleet, database: Database, shop: Shop, workers: Workers
) -> None:
    """`fleet migrate` during work costs no message, and no effect twice."""
    for _ in range(2):
        workers.start(concurrency=1)
    orders = []
    for _ in range(8):
        for _ in range(5):
            orders.append(shop.new_order())
            fleet.submit("refund", orders[-1], {"user_id": "u_42"})
        database.fetch("UPDATE fleet.migrations SET hash = 'old' WHERE name = 'functions'")
        assert "functions" in migrations.migrate(database.url)
    ends = [fleet.wait(f"refund:{order}", 30) for order in orders]
    assert [(t.status, t.last_error) for t in ends] == [("done", None)] * len(orders)
    assert {shop.refunds(order) for order in orders} == {1}


def test_threads_of_the_schema_before_go_on_after_the_migration(
    empty_database: Database,
    broker: Broker,
    shop: Shop,
    stack: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that waits for an answer, and one whose message nobody has taken yet."""
    settings = {
        "postgres_url": empty_database.url,
        "redis_url": broker.url,
        "shop_url": shop.url,
        "data_dir": tmp_path / "data",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"FLEET_{name.upper()}", str(value))
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()
    graphs = Registry.load(ROOT / "langgraph.json")
    migrate_to_previous(empty_database.url, [*graphs.described()])
    # What this release's worker asks of a claim besides: there is nothing of it yet.
    empty_database.fetch(
        "CREATE FUNCTION fleet.earlier() RETURNS jsonb LANGUAGE sql AS 'SELECT NULL::jsonb'"
    )
    large, small = shop.new_order("1500.00"), shop.new_order("20.00")
    with Fleet(empty_database.url, broker.url) as fleet:
        asked = fleet.submit("refund", large, {"user_id": "u_42"}).thread_id
        slot = Slot(get_settings(), graphs, "fleet")
        drain(slot, asked)
        slot.disconnect()
        due = fleet.submit("refund", small, {"user_id": "u_42"}).thread_id
        workers = Workers(stack, empty_database, tmp_path, settings)
        try:
            early = workers.start(wait=False)
            assert early.child.wait(30) == 1 and "fleet migrate" in early.log()
            applied = migrations.migrate(empty_database.url, graphs.described())
            assert applied == [*since(), "functions"]
            workers.start()
            fleet.answer(asked, None, "approved")
            assert fleet.wait(asked, 30).status == fleet.wait(due, 30).status == "done"
        finally:
            workers.close()
    get_settings.cache_clear()
    assert shop.refunds(large) == shop.refunds(small) == 1
