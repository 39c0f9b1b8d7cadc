"""Flower behind the fleet's configuration, as a process, by HTTP."""

import base64
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from celery import Celery

from infra.devservers import Stack
from producers import Fleet
from tests.harness import ROOT, Broker, Shop, clean_environment, eventually
from tests.worker_processes import Workers

CONF = ROOT / "infra" / "docker" / "flower.py"
LOGIN = "ann:s3cret"
PHONE, MASKED = "13812341234", "138****1234"


def command(*options: str) -> list[str]:
    argv = [sys.executable, "-m", "celery", "-A", "workers", "flower", f"--conf={CONF}"]
    return [*argv, "--address=127.0.0.1", "--port=0", *options]


@pytest.fixture
def flower(stack: Stack, broker: Broker, tmp_path: Path) -> Iterator[str]:
    """The address of a Flower whose login stands in a file."""
    (tmp_path / "login").write_text(f"{LOGIN}\n")
    environment = clean_environment(redis_url=broker.url)
    environment["FLOWER_LOGIN_FILE"] = str(tmp_path / "login")
    child = stack.spawn("flower", command(), environment, tmp_path / "flower.log", cwd=tmp_path)

    def address() -> str | None:
        assert child.poll() is None, child.log()
        _, found, rest = child.log().partition("Visit me at ")
        return rest.split()[0] if found and "\n" in rest else None

    yield eventually(address, 30) or ""
    child.kill_group()
    child.wait(5)


def answer(url: str, *, login: str | None = LOGIN, data: bytes | None = None) -> tuple[int, str]:
    """Status and text of a GET, or of a POST of the data."""
    request = urllib.request.Request(url, data=data)
    if login is not None:
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_flower_shows_and_changes_nothing(flower: str) -> None:
    """With the login pages and lists are served; whatever changes something is refused."""
    for path in ("/workers", "/tasks", "/broker", "/api/workers", "/api/tasks"):
        assert answer(flower + path)[0] == 200, path
    table = b"draw=1&start=0&length=10&search[value]=&order[0][column]=0&order[0][dir]=asc"
    table += b"&columns[0][data]=name"
    assert answer(flower + "/tasks/datatable", data=table)[0] == 200
    for path in (
        "/api/worker/shutdown/w",
        "/api/worker/pool/shrink/w",
        "/api/task/send-task/fleet.turns",
        "/api/task/apply/fleet.turns",
        "/api/task/revoke/1",
    ):
        code, said = answer(flower + path, data=b"{}")
        assert (code, "only to look" in said) == (403, True), path


def test_flower_shows_nothing_without_the_login(flower: str) -> None:
    """But its health, which says nothing of the fleet."""
    assert answer(flower + "/healthcheck", login=None) == (200, "OK")
    for path in ("/", "/workers", "/tasks", "/api/workers", "/api/tasks", "/broker"):
        assert answer(flower + path, login=None)[0] == 401, path
        assert answer(flower + path, login="ann:wrong")[0] == 401, path
    assert answer(flower + "/metrics", login=None)[0] == 404
    assert answer(flower + "/api/task/revoke/1", login=None, data=b"{}")[0] == 401


@pytest.mark.parametrize("login", [None, "", "no password", ":"])
def test_flower_does_not_start_without_a_login(
    login: str | None, broker: Broker, tmp_path: Path
) -> None:
    """One sentence that says how to give one."""
    environment = clean_environment(redis_url=broker.url)
    if login is not None:
        (tmp_path / "login").write_text(login)
        environment["FLOWER_LOGIN_FILE"] = str(tmp_path / "login")
    done = subprocess.run(
        command(), env=environment, capture_output=True, text=True, timeout=30, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "error: Flower has no login" in done.stderr and "Traceback" not in done.stderr
    assert "FLOWER_LOGIN_FILE" in done.stderr


@contextmanager
def events_of(broker: Broker) -> Iterator[list[dict[str, Any]]]:
    """Celery's events, as they come, until the block ends."""
    seen: list[dict[str, Any]] = []
    ended = threading.Event()

    def listen() -> None:
        with Celery(broker=broker.url) as app, app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": seen.append})
            with receiver.consumer_context() as (own, *_):
                while not ended.is_set():
                    with suppress(TimeoutError):
                        own.drain_events(timeout=0.2)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield seen
    finally:
        ended.set()
        listener.join(10)


def pages(flower: str, worker: str) -> str:
    """All that Flower shows of tasks and of the worker."""
    tasks = json.loads(answer(f"{flower}/api/tasks")[1])
    paths = ["/api/tasks", f"/api/workers?refresh=1&workername={worker}", f"/worker/{worker}"]
    paths += [f"{path}/{task}" for task in tasks for path in ("/task", "/api/task/info")]
    table = b"draw=1&start=0&length=10&search[value]=&order[0][column]=0&order[0][dir]=asc"
    found = [answer(flower + path) for path in paths]
    found += [answer(flower + "/tasks/datatable", data=table + b"&columns[0][data]=name")]
    assert {status for status, _ in found} == {200}
    return "\n".join(text for _, text in found)


def test_a_phone_number_as_key_is_masked_in_flower_and_in_events(
    flower: str, fleet: Fleet, broker: Broker, shop: Shop, workers: Workers
) -> None:
    """In arguments and results, while the turn runs and when it has ended; nor is a password."""
    password = urlsplit(broker.url).password
    assert password
    shop.call("PUT", f"/admin/orders/{PHONE}", user_id="u_42", amount="141.50")
    shop.fault("refunds", "hold_after", order_id=PHONE)
    with events_of(broker) as events:
        worker = workers.start("-E", concurrency=1)
        eventually(lambda: worker.name in answer(f"{flower}/api/workers?refresh=1")[1], 20, 0.5)
        eventually(lambda: any(event["type"] == "worker-heartbeat" for event in events), 20)
        fleet.submit("refund", PHONE, {"user_id": "u_42"})
        eventually(lambda: shop.held(PHONE))
        eventually(lambda: f"refund:{MASKED}" in answer(f"{flower}/api/tasks")[1])
        running = pages(flower, worker.name)
        shop.release()
        assert fleet.wait(f"refund:{PHONE}", 20).status == "done"
        eventually(lambda: "outcome" in answer(f"{flower}/api/tasks")[1])
        ended = pages(flower, worker.name)
        eventually(lambda: any(event["type"] == "task-succeeded" for event in events))
    told = json.dumps(events, default=str)
    (succeeded,) = [event for event in events if event["type"] == "task-succeeded"]
    (received,) = [event for event in events if event["type"] == "task-received"]
    assert MASKED in received["args"] and MASKED in succeeded["result"]
    assert MASKED in running and MASKED in ended
    for text in (told, running, ended):
        assert PHONE not in text and password not in text
