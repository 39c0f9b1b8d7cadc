"""What others met with streams: ids that repeat, proxies that cut silence, tabs that use up the
connections, gateways and workers that go in the middle."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from producers import Fleet
from producers.gateway import agui_watch, serve, slow
from tests.gateway.agui_streams import Client
from tests.gateway.agui_turns import Stream, Working, asked, follow, run, streaming
from tests.gateway.pages import Page
from tests.gateway.proxies import IdleProxy, SlowProxy
from tests.gateway.serving import Gateway
from tests.harness import Database, eventually, registered_graphs
from tests.worker_processes import Workers
from workers.drain import drain
from workers.slot import Slot

PLACES = {"busy": "talking.py:busy", "talk": "chatter.py:graph", "held": "agui.py:held"}


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return registered_graphs(tmp_path, database, PLACES)


@pytest.fixture
def working(slot: Slot, database: Database) -> Iterator[Working]:
    with Working(slot, database) as working:
        yield working


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lets the graph `held` speak on, once it is there."""
    file = tmp_path / "gate"
    monkeypatch.setenv("AGUI_GATE", str(file))
    return file


def opened(client: httpx.Client, graph: str) -> tuple[str, str]:
    """(session_id, thread_id) of a new session."""
    found = client.post("/sessions", json={"graph": graph}).json()
    return found["session_id"], found["thread_id"]


class View:
    """What a page shows of a conversation, by the frames that it gets: whole messages, and what
    has come of those under way."""

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}

    def take(self, frame: dict[str, Any]) -> None:
        if frame.get("snapshot"):
            parts = [*frame["messages"], *frame["partial"]]
            self.shown = {m["message_id"]: m["text"] for m in parts}
        for one in frame.get("events", [frame]):
            if one["type"] == "message":
                self.shown[one["message_id"]] = one["text"]
            elif one["type"] == "token":
                name = one["message_id"]
                self.shown[name] = self.shown.get(name, "") + one["text"]
            elif one["type"] == "event" and one["event"]["type"] == "received":
                said = one["event"]["data"]
                self.shown[said["message_id"]] = said["content"]

    def until(self, page: Page, *types: str) -> "View":
        """For `complete` a snapshot may stand, in which the turn has ended."""
        while True:
            frame = page.next()
            self.take(frame)
            came = {one["type"] for one in (frame, *frame.get("events", ()))}
            if frame.get("snapshot") and frame["state"] == "completed":
                came.add("complete")
            if came & {*types}:
                return self


def test_going_on_from_any_of_a_thousand_events_gives_the_rest(
    gateway: Gateway, client: httpx.Client, slot: Slot, fleet: Fleet, database: Database
) -> None:
    """F119: of two tasks of one turn, in a tight loop; over WebSocket and as AG-UI."""
    session, thread = opened(client, "busy")
    fleet.submit("busy", thread.partition(":")[2], {"count": 500})
    drain(slot, thread)
    assert slot.publisher.flush(5)
    rows = database.fetch("SELECT epoch, n, type FROM fleet.events ORDER BY epoch, n")
    ids = [f"{epoch}-{n}" for epoch, n, _ in rows]
    assert [kind for _, _, kind in rows].count("custom") == 1000
    for at in (0, *range(7, 1000, 97), len(ids) - 2):
        with Page(gateway, None, session_id=session, last_seq=ids[at]) as page:
            batch = page.until("history_batch")
            assert [frame["seq"] for frame in batch["events"]] == ids[at + 1 :]
    whole, _ = follow(client, thread, "RUN_FINISHED", after=ids[0])
    said = [e["value"] for e in whole if e["type"] == "CUSTOM" and e["name"] == "fleet.custom"]
    places = [n for n, (_, _, kind) in enumerate(rows) if kind == "custom"]
    assert len(said) == 1000
    for at in range(3, 1000, 111):
        rest, _ = follow(client, thread, "RUN_FINISHED", after=ids[places[at]])
        told = [e["value"] for e in rest if e["type"] == "CUSTOM" and e["name"] == "fleet.custom"]
        assert told == said[at + 1 :]


def test_a_proxy_that_cuts_silence_cuts_no_stream(
    working: Working, gate: Path, monkeypatch: pytest.MonkeyPatch, fleet_settings: dict[str, Any]
) -> None:
    """F125: a node says nothing for more than twice as long as the proxy waits; what both doors
    send meanwhile keeps them open, and the end arrives."""
    patience = 2.0
    monkeypatch.setattr(agui_watch, "HEARTBEAT", 0.2)
    monkeypatch.setattr(serve, "_PING_EVERY", 0.2)
    with (
        Gateway(**fleet_settings, gateway_auth="off") as beating,
        IdleProxy(beating.port, patience) as proxy,
        httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", timeout=30) as client,
    ):
        session, thread = opened(client, "held")
        beating.ws_url = f"ws://127.0.0.1:{proxy.port}/ws"
        given = asked(thread, "r1", ("u1", "hi there"))
        with (
            Page(beating, None, session_id=session) as page,
            streaming(client, "POST", "/agent/run", json=given) as stream,
        ):
            stream.until("TEXT_MESSAGE_CONTENT")
            silent = time.monotonic()
            while time.monotonic() < silent + 2.2 * patience:
                assert stream.comment().startswith(":")
            gate.touch()
            assert stream.until("RUN_FINISHED")[-1]["outcome"]["type"] == "success"
            assert page.completed() == "You said hi there."
        assert proxy.cut == 0


def test_the_proxy_of_the_tests_cuts_silence(
    gateway: Gateway, client: httpx.Client, working: Working, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the test above shows something; and what beats by default is soon enough."""
    assert agui_watch.HEARTBEAT <= 15 and serve._PING_EVERY <= 30
    run(client, asked("talk:1", "r1", ("u1", "hi")))
    with (
        IdleProxy(gateway.port, 2.0) as proxy,
        httpx.Client(base_url=f"http://127.0.0.1:{proxy.port}", timeout=30) as through,
        through.stream("GET", "/agent/events", params={"thread_id": "talk:1"}) as response,
    ):
        with pytest.raises((httpx.TransportError, AssertionError)):
            Stream(response).until("never")
        assert proxy.cut == 1


def test_a_stream_whose_client_takes_nothing_in_is_dropped(
    gateway: Gateway,
    client: httpx.Client,
    working: Working,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waits for it is let go; who comes back gets all of it."""
    thread, watched = "talk:1", gateway.state.presence._watched
    run(client, asked(thread, "r1", ("u1", "hello")))
    monkeypatch.setattr(slow, "SEND_WITHIN", 0.5)
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", gateway.port))
        lines = f"GET /agent/events?thread_id={thread} HTTP/1.1", "Host: 127.0.0.1", "", ""
        stuck.sendall("\r\n".join(lines).encode())
        eventually(lambda: watched[thread] == 1)
        fleet.send(thread, {"messages": [{"role": "user", "content": "flood 600"}]})
        eventually(lambda: thread not in watched, 30)
        stuck.settimeout(10)
        with suppress(ConnectionResetError):
            while stuck.recv(1 << 16):
                pass
    monkeypatch.undo()
    assert fleet.wait(thread, 20).status == "done"
    events, _ = follow(client, thread, "RUN_FINISHED")
    assert ("assistant", "flooded") in Client().take(events).texts()


@pytest.fixture
def long_talk(gateway: Gateway, working: Working, fleet: Fleet) -> str:
    """A session in which 1.5 MB were said; the gateway's sockets hold little."""
    gateway._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32 << 10)
    with gateway.client() as client:
        session, thread = opened(client, "talk")
    long, flood = ({"role": "user", "content": text} for text in ("x" * 250_000, "flood 0"))
    fleet.submit("talk", thread.partition(":")[2], {"messages": [flood]})
    for _ in range(6):
        fleet.send(thread, {"messages": [long, flood]})
        assert fleet.wait(thread, 20).status == "done"
    return session


@pytest.mark.parametrize("door", ["/agent/events", "/ws"])
def test_who_takes_in_little_but_steadily_gets_all_of_it(
    gateway: Gateway, long_talk: str, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    """However long one frame takes: it is what comes first each time that they come back."""
    monkeypatch.setattr(slow, "SEND_WITHIN", 2.0)
    with gateway.client() as client:
        thread = client.get(f"/sessions/{long_talk}").json()["thread_id"]
    with SlowProxy(gateway.port, 300_000) as proxy:
        if door == "/agent/events":
            place = f"http://127.0.0.1:{proxy.port}"
            with httpx.Client(base_url=place, timeout=30) as through:
                _, last = follow(through, thread, "RUN_FINISHED")
            assert last is not None
        else:
            gateway.ws_url = f"ws://127.0.0.1:{proxy.port}/ws"
            with Page(gateway, None, session_id=long_talk) as page:
                page.until("recovery_complete")
                page.send("ping")
                page.until("pong")


def test_eight_tabs_of_each_kind_leave_room_for_an_answer(
    gateway: Gateway, client: httpx.Client, working: Working
) -> None:
    """F127: eight WebSockets and eight streams on one thread; an answer is taken within a second,
    and each tab is told of it."""
    session, thread = opened(client, "talk")
    query = {"thread_id": thread}
    took: list[float] = []
    with ExitStack() as stack:
        pages = [stack.enter_context(Page(gateway, None, session_id=session)) for _ in range(8)]
        for page in pages:
            page.until("welcome")
        streams: list[Stream] = []
        for room in "r1", "r2":
            pages[0].say("choose Which room?")
            (question,) = {page.asked() for page in pages}
            while len(streams) < 8:
                tab = stack.enter_context(gateway.client())
                opening = streaming(tab, "GET", "/agent/events", params=query)
                streams.append(stack.enter_context(opening))
                streams[-1].until("RUN_FINISHED")
            body = {**query, "question_id": question, "value": room}
            began = time.monotonic()
            assert client.post("/agent/resume", json=body).status_code == 202
            took.append(time.monotonic() - began)
            for page in pages:
                assert page.completed() == f"You chose {room}"
        for stream in streams:
            tab_shows = Client()
            assert any(("assistant", "You chose r2") in tab_shows.take([e]).texts() for e in stream)
    assert min(took) < 1


def test_pages_come_back_to_another_gateway_in_the_middle_of_a_turn(
    gateway: Gateway,
    client: httpx.Client,
    working: Working,
    gate: Path,
    fleet: Fleet,
    database: Database,
    fleet_settings: dict[str, Any],
) -> None:
    """F122, F139: three pages and three AG-UI tabs that run again what they ran; one turn, no new
    message, each sees the whole, and the next word is taken."""
    session, thread = opened(client, "held")
    given = asked(thread, "r1", ("u1", "hi there"))
    views = [View() for _ in range(3)]
    with ExitStack() as stack:
        pages = [stack.enter_context(Page(gateway, None, session_id=session)) for _ in range(3)]
        for page in pages:
            page.until("welcome")
        pages[0].say("hi there", "u1")
        for page, view in zip(pages, views, strict=True):
            view.until(page, "token")
        tab = stack.enter_context(gateway.client())
        with streaming(tab, "POST", "/agent/run", json=given) as stream:
            stream.until("TEXT_MESSAGE_CONTENT")
            gateway.end()
    began = database.fetch("SELECT epoch FROM fleet.threads")
    with ExitStack() as stack:
        another = stack.enter_context(Gateway(**fleet_settings, gateway_auth="off"))
        back = [stack.enter_context(page.again(another)) for page in pages]
        back[0].until("welcome")
        tabs = [stack.enter_context(another.client()) for _ in range(3)]
        runs = [
            stack.enter_context(streaming(tab, "POST", "/agent/run", json=given)) for tab in tabs
        ]
        for again in runs:
            again.until("TEXT_MESSAGE_CONTENT")
        gate.touch()
        for again in runs:
            assert again.until("RUN_FINISHED")[-1]["outcome"]["type"] == "success"
        for page, view in zip(back, views, strict=True):
            view.until(page, "complete")
            assert [*view.shown.values()] == ["hi there", "You said hi there."]
        assert database.fetch("SELECT epoch FROM fleet.threads") == began
        assert [m.message_id for m in fleet.status(thread).messages] == ["u1"]
        back[2].say("and now")
        assert back[0].completed() == "You said and now."


def test_what_a_killed_worker_said_is_not_left_on_the_page(
    gateway: Gateway, client: httpx.Client, workers: Workers, graphs_file: Path, gate: Path
) -> None:
    """F121: of one that watches, one that was cut off before, and one that comes new; each shows
    in the end what is stored."""
    session, thread = opened(client, "held")
    first = workers.start()
    views = [View() for _ in range(3)]
    with ExitStack() as stack:
        pages = [stack.enter_context(Page(gateway, None, session_id=session)) for _ in range(2)]
        for page in pages:
            page.until("welcome")
        pages[0].say("hi there", "u1")
        for page, view in zip(pages, views, strict=False):
            view.until(page, "token")
        pages[1].close()
        workers.start()
        first.kill()
        views[0].until(pages[0], "recovery_complete")
        gate.touch()
        eventually(lambda: client.get(f"/threads/held/{thread[5:]}").json()["status"] == "done", 30)
        pages[1] = stack.enter_context(pages[1].again(gateway))
        pages.append(stack.enter_context(Page(gateway, None, session_id=session)))
        ends = ("complete",), ("complete", "recovery_complete"), ("recovery_complete",)
        for page, view, end in zip(pages, views, ends, strict=True):
            view.until(page, *end)
    stored = client.get(f"/threads/held/{thread[5:]}/messages").json()["messages"]
    for view in views:
        assert [*view.shown.values()] == [m["text"] for m in stored]
    assert [*views[0].shown.values()] == ["hi there", "You said hi there."]
