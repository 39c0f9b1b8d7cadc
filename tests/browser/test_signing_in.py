"""The chat page of a gateway that asks who comes."""

from playwright.sync_api import WebSocket, expect

from producers.gateway import keys
from producers.gateway.database import Database as GatewayDatabase
from tests.browser.tabs import Tab, Window
from tests.gateway import serving
from tests.gateway.serving import Gateway
from tests.harness import Database, eventually
from tests.worker_processes import Worker


def sign_in(tab: Tab, token: str) -> None:
    tab.page.get_by_label("Access key or token").fill(token)
    tab.page.get_by_role("dialog").get_by_role("button", name="Continue").click()


def signed_in(window: Window, gateway: Gateway, token: str, graph: str = "paged") -> Tab:
    """A tab in which somebody has signed in."""
    tab = window.open(gateway.url, graph, live=False)
    sign_in(tab, token)
    tab.is_live()
    return tab


def test_a_token_is_asked_for_and_kept_by_the_tab(
    window: Window, guarded: Gateway, worker: Worker
) -> None:
    """A wrong one is told so. A right one outlives a reload, is in no address, in nothing that
    other tabs or later days see, and goes to the gateway in the first frame alone."""
    token = serving.token("u_1")
    tab = window.open(guarded.url, "paged", live=False)
    frames: list[str] = []

    def heard(socket: WebSocket) -> None:
        assert token not in socket.url
        socket.on("framesent", lambda payload: frames.append(str(payload)))

    tab.page.on("websocket", heard)
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    tab.shot("12-sign-in")
    sign_in(tab, "wrong")
    tab.is_told("This key is not valid, or not any more.")
    sign_in(tab, token)
    tab.is_live()
    tab.say("hello")
    tab.is_told("Heard: hello")
    tab.page.reload()
    tab.is_live()
    tab.is_told("Heard: hello")
    assert token not in tab.page.url
    assert token not in tab.page.evaluate("JSON.stringify(localStorage)")
    shown = [frame for frame in frames if token in frame]
    assert len(shown) == 2 and all('"type":"init"' in frame for frame in shown)
    other = window.open(guarded.url, "paged", live=False)
    expect(other.page.get_by_role("dialog")).to_be_visible()


def test_another_user_gets_another_conversation(
    window: Window, guarded: Gateway, worker: Worker
) -> None:
    """At the same browser, with the session of the one before in its memory."""
    one = signed_in(window, guarded, serving.token("u_1"))
    one.say("a secret")
    one.is_told("Heard: a secret")
    session = one.session()
    one.page.close()
    two = signed_in(window, guarded, serving.token("u_2"))
    two.is_told("That conversation is not there any more; this is a new one.")
    assert two.session() not in (None, session)
    assert two.said() == []


def test_a_key_that_is_revoked(window: Window, guarded: Gateway, worker: Worker) -> None:
    """The page asks for another, and goes on where it was: what was said meanwhile counts once."""
    first = guarded.key(user="u_1")
    tab = signed_in(window, guarded, first)
    tab.say("hello")
    tab.is_told("Heard: hello")
    database = GatewayDatabase(guarded.settings.require_postgres(), 15.0)
    keys.revoke(database, first)
    database.close()
    tab.say("still me")
    expect(tab.page.get_by_role("dialog")).to_be_visible()
    sign_in(tab, guarded.key(user="u_1"))
    tab.is_told("Heard: still me")
    tab.rests()
    assert tab.said() == ["hello", "Heard: hello", "still me", "Heard: still me"]


def test_a_sensitive_conversation_that_was_left_alone(
    window: Window, guarded: Gateway, worker: Worker, database: Database
) -> None:
    """It asks who is there before it shows anything."""
    key = guarded.key(user="u_1")
    tab = signed_in(window, guarded, key, "secret")
    tab.say("my salary")
    tab.is_told("Heard: my salary")
    address = tab.page.url
    there = "SELECT count(*) FROM fleet.presence"
    eventually(lambda: database.value(there), 30)
    tab.page.goto("about:blank")
    eventually(lambda: database.value(there) == 0, 30)
    database.fetch("SELECT fleet.move_clock('1 hour')")
    tab.page.goto(address)
    tab.is_told("You were away for long. Please sign in again.")
    assert tab.said() == []
    sign_in(tab, key)
    tab.is_live()
    tab.is_told("Heard: my salary")


def test_a_role_that_may_not(window: Window, guarded: Gateway, worker: Worker) -> None:
    """Who may only send may not answer, and is told so; the question stays open."""
    tab = signed_in(window, guarded, guarded.key("producer"))
    tab.say("ask options")
    tab.question("pick").get_by_role("button", name="red").click()
    tab.is_told("Your key does not allow this.")
    tab.question("pick", "open")
