"""The broker and the gateway under a run die by SIGKILL: a client that comes back with its last
id ends with the transcript of a run without faults."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from infra.devservers import Stack
from tests.acceptance.servers import Servers
from tests.gateway.agui_streams import Client, valid, valid_so_far
from tests.gateway.agui_turns import asked, follow, run, streaming, write_agui_graphs
from tests.gateway.conftest import Serve
from tests.harness import Broker, Database, eventually
from tests.worker_processes import Workers

OWN = {"id": "u1", "role": "user", "content": "hi there"}
MORE = {"id": "u2", "role": "user", "content": "and now"}
GIVEN = asked("held:1", "r1", ("u1", "hi there"))
QUERY = {"thread_id": "held:1"}


@pytest.fixture
def servers(stack: Stack) -> Iterator[Servers]:
    with Servers(postgres_url=stack.postgres_url, persistent=False) as servers:
        yield servers


@pytest.fixture
def broker(servers: Servers) -> Iterator[Broker]:
    """Of the test's own, which it may kill."""
    with redis.Redis.from_url(servers.stack.redis_url, socket_timeout=5) as client:
        yield Broker(servers.stack.redis_url, client)


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def gate(graphs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `held` waits for after its first word."""
    monkeypatch.setenv("AGUI_GATE", str(tmp_path / "gate"))
    return tmp_path / "gate"


def shown(told: Client) -> list[tuple[str, str]]:
    """What the client shows after a good end."""
    assert told.outcome is not None and told.outcome["type"] == "success"
    return told.texts()


def unharmed(client: httpx.Client) -> list[tuple[str, str]]:
    """What a client shows of the same chat when nothing has failed."""
    first = run(client, asked("held:2", "r1", ("u1", "hi there")))
    told = Client([OWN]).take(first)
    again = {**asked("held:2", "r2"), "messages": [*told.messages, MORE]}
    return shown(Client([*told.messages, MORE]).take(run(client, again)))


def gone_on(client: httpx.Client, told: Client) -> list[tuple[str, str]]:
    """What it shows after one more word."""
    again = {**asked("held:1", "r2"), "messages": [*told.messages, MORE]}
    return shown(Client([*told.messages, MORE]).take(run(client, again)))


def test_a_broker_that_is_killed_leaves_no_trace(
    client: httpx.Client, workers: Workers, gate: Path, servers: Servers, broker: Broker
) -> None:
    """With all that it held, in the middle of a text: for who stays on the stream and for who
    comes back when it is there again. The chat goes on through it."""
    workers.start()
    pid = broker.client.info("server")["process_id"]
    with streaming(client, "POST", "/agent/run", json=GIVEN) as stayed:
        seen = stayed.until("TEXT_MESSAGE_CONTENT")
        before, last = follow(client, "held:1", "TEXT_MESSAGE_CONTENT")
        os.kill(pid, signal.SIGKILL)
        servers.end()
        servers.start()
        eventually(broker.client.ping, 20)
        assert broker.client.info("server")["process_id"] != pid
        gate.touch()
        seen += list(stayed)
    after, _ = follow(client, "held:1", "RUN_FINISHED", after=last)
    back = Client([OWN]).take(before).take(after)
    assert shown(Client([OWN]).take(valid(seen))) == shown(back)
    assert gone_on(client, back) == unharmed(client)


def test_a_gateway_that_is_killed_leaves_no_trace(
    serve: Serve, workers: Workers, gate: Path
) -> None:
    """In the middle of a text: another one goes on from the client's last id."""
    workers.start()
    child, url = serve(gateway_auth="off")
    with (
        httpx.Client(base_url=url, timeout=30) as client,
        streaming(client, "POST", "/agent/run", json=GIVEN) as stream,
    ):
        seen = stream.until("TEXT_MESSAGE_CONTENT")
        child.kill_group()
        with pytest.raises(httpx.TransportError):
            stream.until("RUN_FINISHED")
        valid_so_far(seen)
    _, url = serve(gateway_auth="off")
    with httpx.Client(base_url=url, timeout=30) as client:
        gate.touch()
        rest, _ = follow(client, "held:1", "RUN_FINISHED", after=stream.last_id)
        parts = [e["delta"] for e in [*seen, *rest] if e["type"] == "TEXT_MESSAGE_CONTENT"]
        assert "".join(parts) == "You said hi there."
        back = Client([OWN]).take(seen).take(rest)
        assert shown(back) == [("user", "hi there"), ("assistant", "You said hi there.")]
        assert gone_on(client, back) == unharmed(client)
