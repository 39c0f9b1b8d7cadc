"""Networks that go, gateways and workers that are killed: the chat page shows all of it, once."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from infra.devservers import Child
from producers.chaos.proxy import Proxy
from tests.browser.tabs import Tab, Window
from tests.gateway.serving import Gateway
from tests.harness import Database, eventually
from tests.worker_processes import Worker, Workers

WORDS = 100
ANSWER = " ".join(f"1.{n}" for n in range(WORDS))


@pytest.fixture
def network(gateway: Gateway) -> Iterator[Proxy]:
    """Between the browser and the gateway."""
    with Proxy(gateway.url) as network:
        yield network


class Gateways:
    """A gateway as a process, that can be killed and started again at the same address."""

    def __init__(self, serve: Callable[..., tuple[Child, str]]) -> None:
        self._serve = serve
        self._child, self.url = serve(gateway_auth="off")

    def kill(self) -> None:
        self._child.kill_group()
        assert self._child.wait(10) is not None

    def start(self) -> None:
        port = urlsplit(self.url).port
        self._child, _ = self._serve("--port", str(port), gateway_auth="off")


@pytest.fixture
def gateways(serve: Callable[..., tuple[Child, str]]) -> Gateways:
    return Gateways(serve)


def halfway(tab: Tab, words: int = WORDS) -> None:
    """Begins a long answer, and waits until its first half is there."""
    tab.say(f"stream {words}")
    expect(tab.bubble(f"1.{words // 2 - 1}")).to_be_visible()
    expect(tab.page.locator(".streaming")).to_have_count(1)


def answered(tab: Tab, text: str = ANSWER) -> None:
    """Waits until the whole answer is what the page shows, and that nothing stands twice."""
    expect(tab.page.locator(".said.assistant > p").last).to_have_text(text)
    tab.rests()
    assert tab.said("assistant").count(text) == 1
    assert len(tab.ids()) == len(set(tab.ids()))


def messages(database: Database) -> list[tuple[str, str]]:
    """(kind, status) of what has been accepted, in its order."""
    return database.fetch("SELECT kind, status FROM fleet.messages ORDER BY accepted_at, seq")


def test_offline_and_online(
    window: Window, network: Proxy, gate: Path, worker: Worker, database: Database
) -> None:
    """The browser says that the network has gone: so does the page, at once. What is said
    meanwhile waits, is sent when it is back, and counts once."""
    tab = window.open(network.url, "paged")
    halfway(tab)
    window.context.set_offline(True)
    network.cut()
    tab.is_("offline")
    tab.say("are you there?")
    tab.is_told("will be sent when the connection is back")
    tab.shot("6-offline")
    gate.touch()
    eventually(lambda: messages(database) == [("start", "done")], 60)
    tab.is_("offline")
    window.context.set_offline(False)
    tab.is_live()
    expect(tab.page.locator(".said.assistant > p").last).to_have_text("Heard: are you there?")
    tab.rests()
    assert tab.said() == [
        f"stream {WORDS}", ANSWER, "are you there?", "Heard: are you there?"
    ]  # fmt: skip
    assert messages(database) == [("start", "done"), ("input", "done")]


def test_a_network_that_says_nothing(window: Window, network: Proxy, worker: Worker) -> None:
    """Packets just vanish. When the browser has a hint of it the page finds out in seconds."""
    tab = window.open(network.url, "paged")
    tab.say("one")
    tab.is_told("Heard: one")
    network.black_hole()
    tab.say("two")
    tab.page.evaluate("dispatchEvent(new Event('offline'))")
    expect(tab.page.locator("#connection")).not_to_have_attribute("data-state", "live")
    tab.is_told("will be sent when the connection is back")
    network.pass_on()
    tab.is_live()
    tab.is_told("Heard: two")
    tab.rests()
    assert tab.said() == ["one", "Heard: one", "two", "Heard: two"]


def test_a_gateway_that_is_killed(
    window: Window, gateways: Gateways, gate: Path, worker: Worker, database: Database
) -> None:
    """kill -9 in the middle of an answer: "reconnecting in N s", then the rest of it. The turn
    has gone on, and what was said meanwhile is there once."""
    tab = window.open(gateways.url, "paged")
    halfway(tab)
    gateways.kill()
    expect(tab.page.locator("#connection")).to_have_text(re.compile("reconnecting in [0-9]+ s"))
    tab.say("and then?")
    tab.shot("7-reconnecting")
    gate.touch()
    eventually(lambda: messages(database) == [("start", "done")], 60)
    gateways.start()
    tab.is_live()
    expect(tab.page.locator(".said.assistant > p").last).to_have_text("Heard: and then?")
    tab.rests()
    assert tab.said() == [f"stream {WORDS}", ANSWER, "and then?", "Heard: and then?"]
    assert messages(database) == [("start", "done"), ("input", "done")]


def test_connections_that_are_cut_time_and_again(
    window: Window, network: Proxy, gate: Path, worker: Worker, gateway: Gateway
) -> None:
    """While an answer streams: nothing is missing from it and nothing is in it twice, without a
    reload and after one. It is what is stored."""
    tab = window.open(network.url, "paged")
    halfway(tab)
    network.cut()
    tab.is_live()
    gate.touch()
    for _ in range(3):
        network.cut()
        tab.is_live()
    answered(tab)
    tab.page.reload()
    answered(tab)
    with gateway.client() as client:
        [thread] = client.get("/threads").json()["threads"]
        graph, _, key = thread["thread_id"].partition(":")
        stored = client.get(f"/threads/{graph}/{key}/messages").json()["messages"]
    assert [message["text"].strip() for message in stored] == tab.said()


def test_a_reload_in_the_middle_of_an_answer(
    window: Window, gateway: Gateway, gate: Path, worker: Worker
) -> None:
    """What was written so far stands there, and goes on."""
    tab = window.open(gateway.url, "paged")
    halfway(tab)
    tab.page.reload()
    expect(tab.page.locator(".said.streaming > p")).to_have_text(
        " ".join(f"1.{n}" for n in range(WORDS // 2))
    )
    tab.shot("8-streaming")
    gate.touch()
    answered(tab)


def test_a_page_that_has_seen_half_gets_each_message_once(
    window: Window, network: Proxy, gate: Path, worker: Worker
) -> None:
    """A new connection goes on after the last thing seen; a reload begins with what stands."""
    tab = window.open(network.url, "paged")
    said = []
    for n in range(6):
        tab.say(f"number {n}")
        tab.is_told(f"Heard: number {n}")
        said += [f"number {n}", f"Heard: number {n}"]
        if n == 2:
            network.cut()
            tab.is_live()
    tab.rests()
    assert tab.said() == said
    tab.page.reload()
    tab.is_told("Heard: number 5")
    assert tab.said() == said


def test_a_worker_that_is_killed(
    window: Window, gateway: Gateway, gate: Path, worker: Worker, workers: Workers
) -> None:
    """What the dead attempt had streamed is taken back, not left beside the new text."""
    tab = window.open(gateway.url, "paged")
    halfway(tab)
    worker.kill()
    gate.touch()
    workers.start(concurrency=2)
    second = " ".join(f"2.{n}" for n in range(WORDS))
    answered(tab, second)
    assert not any("1." in text.split() or text.startswith("1.0") for text in tab.said())


def test_a_tab_that_slept_through_a_restart(
    window: Window, gateways: Gateways, gate: Path, worker: Worker
) -> None:
    """Its socket was lost with the gateway while an answer was under way: it comes back when the
    tab is looked at, with what was missed, and the text box works."""
    tab = window.open(gateways.url, "paged")
    halfway(tab)
    tab.page.evaluate("Object.defineProperty(document, 'hidden', {value: true, writable: true})")
    gateways.kill()
    gate.touch()
    gateways.start()
    tab.page.evaluate(
        "document.hidden = false; document.dispatchEvent(new Event('visibilitychange'))"
    )
    tab.is_live()
    answered(tab)
    tab.say("good morning")
    tab.is_told("Heard: good morning")
    tab.rests()


def test_three_tabs_and_a_restart_start_nothing(
    window: Window, gateways: Gateways, gate: Path, worker: Worker, database: Database
) -> None:
    """Each comes back by itself, and none of them says anything again."""
    tabs = [window.open(gateways.url, "paged") for _ in range(3)]
    halfway(tabs[0])
    gateways.kill()
    gateways.start()
    for tab in tabs:
        tab.is_live()
    gate.touch()
    for tab in tabs:
        answered(tab)
    assert messages(database) == [("start", "done")]
    assert gate.with_suffix(".attempts").read_text() == "x\n"
    assert database.value("SELECT count(*) FROM fleet.sessions") == 1


def test_what_was_not_acknowledged_is_sent_after_a_reload_too(
    window: Window, gateways: Gateways, worker: Worker, database: Database
) -> None:
    """It is kept by the tab, and counts once."""
    tab = window.open(gateways.url, "paged")
    tab.say("first")
    tab.is_told("Heard: first")
    gateways.kill()
    tab.say("second")
    tab.is_told("will be sent when the connection is back")
    gateways.start()
    tab.page.reload()
    tab.is_told("Heard: second")
    tab.rests()
    assert tab.said() == ["first", "Heard: first", "second", "Heard: second"]
    assert len(messages(database)) == 2


def test_an_acknowledgement_that_is_lost(
    window: Window, network: Proxy, worker: Worker, database: Database
) -> None:
    """What was accepted is said again after the reconnect, and counts once."""
    window.context.add_init_script(
        """globalThis.WebSocket = class extends WebSocket {
            set onmessage(act) {
                super.onmessage = act && ((event) => globalThis.deaf || act(event));
            }
        };"""
    )
    tab = window.open(network.url, "paged")
    tab.page.evaluate("globalThis.deaf = true")
    tab.say("hello")
    eventually(lambda: messages(database) == [("start", "done")], 60)
    tab.is_told("sending…")
    tab.page.evaluate("globalThis.deaf = false")
    network.cut()
    tab.is_told("Heard: hello")
    tab.rests()
    assert tab.said() == ["hello", "Heard: hello"]
    assert messages(database) == [("start", "done")]


def test_backoff_grows_and_starts_small_again(window: Window, gateways: Gateways) -> None:
    """Tries are further and further apart, by chance at different times, half a minute at most."""
    tab = window.open(gateways.url, "paged")
    waits: Any = tab.page.evaluate(
        """async () => {
            const {Connection} = await import("./chat/connection.js");
            const waits = [], timers = globalThis.setTimeout;
            class Dead { constructor() { timers(() => this.onclose({code: 1006}), 0); } close() {} }
            const real = globalThis.WebSocket;
            globalThis.WebSocket = Object.assign(Dead, {OPEN: 1});
            await new Promise((done) => {
                const one = new Connection({
                    address: "", init: () => ({}), heard() {}, over() {},
                    changed: ({until}) => {
                        if (until === null) return;
                        waits.push(until - Date.now());
                        if (waits.length < 12) timers(() => one.open(), 0);
                        else { one.stop(); done(); }
                    },
                });
                one.open();
            });
            globalThis.WebSocket = real;
            return waits;
        }"""
    )
    most = [min(30_000, 500 * 2**n) for n in range(12)]
    assert all(m / 2 - 200 <= wait <= m for wait, m in zip(waits, most, strict=True)), waits
