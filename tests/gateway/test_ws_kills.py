"""Gateways, workers and the broker's memory killed in the middle of an answer that a page reads:
what it shows in the end is what it would have shown without."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.gateway.conftest import Serve
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway
from tests.gateway.shown import Shown
from tests.harness import Broker, Database, eventually, registered_graphs
from tests.worker_processes import Workers

SAID = "You said hi there."


@pytest.fixture
def gate(
    settings_env: None, tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Workers have a graph that speaks one word and waits for this file before the next."""
    registered_graphs(tmp_path, database, {"held": "agui.py:held"})
    monkeypatch.setenv("AGUI_GATE", str(tmp_path / "gate"))
    return tmp_path / "gate"


def begun(gateway: Any) -> Page:
    """A page that has read the first word."""
    page = Page(gateway, "held")
    page.until("welcome")
    page.say("hi there")
    assert page.until("token")["text"] == "You"
    return page


def test_a_gateway_killed_in_the_middle_is_another_one_s_work(
    serve: Serve, workers: Workers, gate: Path, database: Database
) -> None:
    """The page goes on there after what it has; the session's state is the sweep's."""
    workers.start()
    child, url = serve(gateway_auth="off")
    page = begun(SimpleNamespace(ws_url=f"{url.replace('http', 'ws', 1)}/ws"))
    child.kill_group()
    assert page.closed()[0] is None
    gate.touch()
    _, url = serve(gateway_auth="off")
    with page.again(SimpleNamespace(ws_url=f"{url.replace('http', 'ws', 1)}/ws")) as back:
        back.shown(SAID)
        assert back.frames[0]["resumed"] is True
        assert "recovery_start" not in back.types()
        tokens = [f for one in back.frames for f in one.get("events", [one])]
        text = "You" + "".join(f["text"] for f in tokens if f["type"] == "token")
        assert text == SAID
    state = "SELECT state FROM fleet.sessions"
    eventually(lambda: database.value(state) == "completed", 20)


@pytest.mark.parametrize("victim", ["worker", "broker"])
def test_a_kill_behind_the_gateway_leaves_no_trace(
    gateway: Gateway, workers: Workers, gate: Path, broker: Broker, victim: str
) -> None:
    """What a killed attempt said is taken back; a broker that forgets changes nothing."""
    first = workers.start()
    with begun(gateway) as page:
        kill: dict[str, Callable[[], Any]] = {
            "worker": lambda: (workers.start(), first.kill()),
            "broker": broker.client.flushdb,
        }
        kill[victim]()
        gate.touch()
        assert page.completed() == SAID
        assert Shown(page.frames).texts == ["hi there", SAID]
        reasons = [f["reason"] for f in page.frames if f["type"] == "recovery_start"]
        assert ("retracted" in reasons) == (victim == "worker")
