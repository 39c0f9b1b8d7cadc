"""What docs/websocket.md promises in numbers and names."""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from producers.gateway import serve, ws_opening
from tests.gateway.agui_turns import Working
from tests.gateway.pages import Page
from tests.gateway.serving import Gateway
from tests.harness import Database, eventually, registered_graphs
from workers.drain import drain
from workers.slot import Slot

PLACES = {"talk": "chatter.py:graph", "paged": "paged.py:graph", "held": "agui.py:held"}
WELCOME = {
    "type",
    "session_id",
    "thread_id",
    "graph",
    "message",
    "resumed",
    "active",
    "state",
    "last_seq",
}


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return registered_graphs(tmp_path, database, PLACES)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `held` waits for after its first word."""
    monkeypatch.setenv("AGUI_GATE", str(tmp_path / "gate"))
    return tmp_path / "gate"


@pytest.fixture
def working(gate: Path, slot: Slot, database: Database) -> Iterator[Working]:
    with Working(slot, database) as working:
        yield working
        gate.touch()


@pytest.fixture
def page(gateway: Gateway, graphs_file: Path) -> Iterator[Callable[[str], Page]]:
    """Opens a page with a session of its own."""
    opened: list[Page] = []

    def open_page(graph: str) -> Page:
        opened.append(Page(gateway, graph))
        opened[-1].until("welcome")
        return opened[-1]

    yield open_page
    for one in opened:
        one.close()


def test_an_init_has_five_seconds(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here less: a page that says nothing is told so, and closed."""
    assert ws_opening.INIT_WITHIN == 5
    monkeypatch.setattr(ws_opening, "INIT_WITHIN", 0.2)
    with connect(gateway.ws_url) as silent:
        assert json.loads(silent.recv(timeout=20))["code"] == "no_init"
        with pytest.raises(ConnectionClosed) as closed:
            silent.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "no_init")


def test_a_dead_connection_has_ninety_seconds(
    fleet_settings: dict[str, Any], graphs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ping every 30, and 60 for its answer; here less."""
    assert (serve._PING_EVERY, serve._PING_WITHIN) == (30, 60)
    monkeypatch.setattr(serve, "_PING_EVERY", 0.2)
    monkeypatch.setattr(serve, "_PING_WITHIN", 2.0)
    with Gateway(**fleet_settings, gateway_auth="off") as gateway, Page(gateway) as page:
        page.until("welcome")
        page.socket.protocol.send_frame = lambda frame: None  # type: ignore[method-assign]
        assert page.closed()[0] == 1011


def test_a_welcome_says_how_the_session_stands(
    gateway: Gateway, page: Callable[[str], Page], working: Working, gate: Path, database: Database
) -> None:
    """Its documented fields and no others: new, while a turn runs, and after it."""
    newest = "SELECT epoch || '-' || n FROM fleet.events ORDER BY epoch DESC, n DESC LIMIT 1"
    first = page("held")
    new = first.frames[0]
    first.say("hi there")
    first.until("token")
    with first.again(gateway) as back:
        running = back.until("welcome")
        gate.touch()
        assert back.completed() == "You said hi there."
    with first.again(gateway, last_seq=None) as again:
        idle = again.until("welcome")
    for frame in (new, running, idle):
        assert set(frame) == WELCOME
        assert frame["session_id"] == first.session_id and frame["message"]
        assert (frame["thread_id"], frame["graph"]) == (new["thread_id"], "held")
    assert new["thread_id"].startswith("held:")
    stands = [(f["resumed"], f["active"], f["state"]) for f in (new, running, idle)]
    assert stands == [(False, False, "active"), (True, True, "active"), (True, False, "completed")]
    assert (new["last_seq"], idle["last_seq"]) == (None, database.value(newest))


def test_a_question_that_expires_says_when(
    gateway: Gateway, page: Callable[[str], Page], working: Working, database: Database
) -> None:
    """Live and after a reload, by the clock of Postgres; another one has null."""
    brief = page("paged")
    brief.say("ask brief")
    told = [brief.until("interrupt")["expires_at"]]
    with brief.again(gateway, last_seq=None) as back:
        told.append(back.until("history_batch")["questions"][0]["expires_at"])
    until = database.value("SELECT expires_at FROM fleet.questions")
    assert all(abs(datetime.fromisoformat(t) - until) < timedelta(seconds=1) for t in told)
    other = page("paged")
    other.say("ask clarify")
    assert other.until("interrupt")["expires_at"] is None


def test_a_frame_of_more_than_a_mebibyte_ends_the_connection(page: Callable[[str], Page]) -> None:
    """One of just as much is refused, and the connection goes on."""
    talk = page("talk")
    talk.socket.send("x" * (1 << 20))
    assert talk.until("error")["code"] == "too_large"
    talk.socket.send("x" * ((1 << 20) + 1))
    assert talk.closed()[0] == 1009


def test_a_page_that_lags_behind_comes_back_for_the_rest(
    gateway: Gateway, page: Callable[[str], Page], slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 1013, and its last_seq brings what a page that kept up has got: nothing is lost and
    nothing twice."""
    steady = page("talk")
    thread, hub = steady.frames[0]["thread_id"], gateway.state.hub
    steady.say("hello")
    drain(slot, thread)
    steady.until("complete")
    with Page(gateway, None, session_id=steady.session_id) as late:
        late.until("recovery_complete")
    had = len(events(steady))
    assert late.seq == steady.seq
    eventually(lambda: len(hub._topics[thread].watchers) == 1)
    with monkeypatch.context() as small:
        small.setattr(hub, "watch", partial(hub.watch, queue=2))
        late = late.again(gateway)
        eventually(lambda: len(hub._topics[thread].watchers) == 2)
    steady.say("flood 50")
    drain(slot, thread)
    steady.until("complete")
    assert late.closed() == (1013, "try_again")
    assert "complete" not in late.types()
    with late.again(gateway) as back:
        while back.seq != steady.seq:
            back.next()
        assert "recovery_start" not in back.types()
    assert events(late) + events(back) == events(steady)[had:]


def events(page: Page) -> list[dict[str, Any]]:
    """All that has come of the thread, at once or in a batch."""
    every = [one for frame in page.frames for one in frame.get("events", [frame])]
    return [one for one in every if "seq" in one]
