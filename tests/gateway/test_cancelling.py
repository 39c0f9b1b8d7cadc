"""A turn that is running is called off by a door of the gateway: it ends at its next step, and
whoever watches is told."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from producers import Fleet
from tests.gateway.agui_turns import Working, asked, streaming, write_agui_graphs
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway
from tests.harness import Database
from workers.slot import Slot


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def working(slot: Slot, database: Database, fleet: Fleet) -> Iterator[Working]:
    """Turns of `endless` are called off at the latest at the end, or they would never end."""
    with Working(slot, database) as working:
        yield working
        for (thread,) in database.fetch("SELECT thread_id FROM fleet.threads"):
            fleet.cancel(thread)


def ended(page: Page) -> str:
    """The outcome of the turn that the page sees end, maybe in a snapshot."""
    while True:
        frame = page.until("event", "complete", "error", "history_batch")
        if frame["type"] == "history_batch":
            if frame.get("state") in ("cancelled", "completed"):
                return str(frame["state"])
            continue
        if frame["type"] != "event":
            return str(frame["type"])
        if frame["event"]["type"] == "ended":
            return str(frame["event"]["data"]["outcome"])


def test_a_page_calls_off_a_running_turn(
    gateway: Gateway, working: Working, database: Database, fleet: Fleet
) -> None:
    """It is told that this was requested, and then with all other pages that the turn has ended
    as cancelled; to call it off again is told the same."""
    with Page(gateway, "endless") as page:
        thread = page.until("welcome")["thread_id"]
        page.say("hi there")
        with Page(gateway, None, session_id=page.session_id) as other:
            page.until("token")
            other.until("recovery_complete", "message")
            page.send("cancel")
            assert page.until("cancelled")["outcome"] == "requested"
            assert [ended(page), ended(other)] == ["cancelled", "cancelled"]
            page.send("cancel")
            assert page.until("cancelled")["outcome"] == "cancelled"
    assert fleet.status(thread).status == "cancelled"
    seen = database.value("SELECT fleet.session_seen(s) FROM fleet.sessions s")
    assert seen["state"] == "cancelled"


def test_agui_calls_off_a_running_turn(
    client: httpx.Client, working: Working, fleet: Fleet
) -> None:
    """Its run, and another stream of the thread, end as cancelled; once more changes nothing."""
    query = {"thread_id": "endless:1"}
    given = asked("endless:1", "r1", ("u1", "hi there"))
    with (
        streaming(client, "POST", "/agent/run", json=given) as run,
        streaming(client, "GET", "/agent/events", params=query) as other,
    ):
        for stream in (run, other):
            stream.until("RUN_STARTED")
        run.until("TEXT_MESSAGE_END")
        done = client.post("/agent/cancel", json=query)
        assert (done.status_code, done.json()["outcome"]) == (202, "requested")
        for stream in (run, other):
            assert stream.until("RUN_FINISHED")[-1]["outcome"] == {"type": "cancelled"}
    assert fleet.status("endless:1").status == "cancelled"
    assert client.post("/agent/cancel", json=query).json()["outcome"] == "cancelled"
