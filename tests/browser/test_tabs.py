"""Several tabs on one conversation, and answers that came too late."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from producers import Fleet
from tests.browser.tabs import Tab, Window
from tests.gateway.serving import Gateway
from tests.harness import Database, eventually

pytestmark = pytest.mark.usefixtures("worker")


def asked(database: Database, status: str = "open") -> tuple[str, str]:
    """(thread_id, question_id) of the only question in that status."""
    sql = "SELECT thread_id, question_id FROM fleet.questions WHERE status = %s"
    [found] = eventually(lambda: database.fetch(sql, status), 30)
    return found[0], found[1]


def test_two_tabs_see_the_same(window: Window, gateway: Gateway, database: Database) -> None:
    """What is said, asked and answered in one is in the other, once; what one has answered is
    switched off in both; closing one changes nothing."""
    one = window.open(gateway.url)
    two = window.open(gateway.url)
    assert one.session() == two.session()
    one.say("a room for 8 tomorrow at 2pm")
    two.question("select_room").locator(".card").first.click()
    closed = one.question("select_room", "answered")
    for card in closed.locator(".card").all():
        expect(card).to_be_disabled()
    two.question("confirm")
    two.page.close()
    one.question("confirm")
    one.press("Yes")
    one.phase("BOOKED")
    one.rests()
    assert len(one.ids()) == len(set(one.ids()))
    assert database.value("SELECT count(*) FROM booking.bookings") == 1


def test_tabs_opened_at_once_share_one_conversation(window: Window, gateway: Gateway) -> None:
    """Also where there was none before."""
    tabs = [window.open(gateway.url, "paged", live=False) for _ in range(3)]
    for tab in tabs:
        tab.is_live()
    eventually(lambda: len({tab.session() for tab in tabs}) == 1)
    tabs[0].say("hello")
    for tab in tabs:
        tab.is_told("Heard: hello")
        tab.rests()
        assert tab.said() == ["hello", "Heard: hello"]


def test_a_new_conversation_is_every_tabs(window: Window, gateway: Gateway) -> None:
    """Tabs of one browser stay together."""
    one, two = window.open(gateway.url, "paged"), window.open(gateway.url, "paged")
    one.say("hello")
    two.is_told("Heard: hello")
    two.press("New conversation")
    one.is_told("A new conversation was begun in another tab.")
    assert one.said() == []
    one.is_live()
    one.say("again")
    two.is_told("Heard: again")
    assert two.said() == ["again", "Heard: again"]


def test_two_browsers_are_two_conversations(
    windows: Callable[..., Window], gateway: Gateway
) -> None:
    """Each has its own session, and nothing of the other's."""
    one, two = (windows().open(gateway.url, "paged") for _ in range(2))
    one.say("mine")
    one.is_told("Heard: mine")
    two.say("yours")
    two.is_told("Heard: yours")
    assert one.said() == ["mine", "Heard: mine"]
    assert two.said() == ["yours", "Heard: yours"]


def test_a_question_that_expires(window: Window, gateway: Gateway, database: Database) -> None:
    """It says until when, and when that is over that nobody answered; the chat goes on."""
    tab = window.open(gateway.url, "paged")
    tab.say("ask brief")
    expect(tab.question("clarify")).to_contain_text("can be answered until")
    database.fetch("SELECT fleet.move_clock('1 hour')")
    tab.question("clarify", "expired")
    tab.is_told("Nobody answered in time; the question is closed.")
    tab.shot("9-expired")
    tab.say("hello")
    tab.is_told("Heard: hello")


def unheard(tab: Tab) -> None:
    """What the gateway tells this tab is lost from now on; what the tab says is not."""
    tab.page.evaluate("globalThis.deaf = true")


@pytest.fixture
def deaf(window: Window) -> None:
    """Tabs that can be made not to hear of events: as if what they do had crossed with them."""
    window.context.add_init_script(
        """globalThis.WebSocket = class extends WebSocket {
            set onmessage(act) {
                super.onmessage = act && ((event) => {
                    if (!globalThis.deaf || !("seq" in JSON.parse(event.data))) act(event);
                });
            }
        };"""
    )


def test_an_answer_after_another_one(
    deaf: None, window: Window, gateway: Gateway, database: Database, fleet: Fleet
) -> None:
    """The first one counts, and who was later is told."""
    tab = window.open(gateway.url, "paged")
    tab.say("ask options")
    tab.question("pick")
    unheard(tab)
    fleet.answer(*asked(database), "green")
    asked(database, "answered")
    tab.press("red")
    tab.is_told("Somebody answered this already.")
    tab.question("pick", "answered")
    tab.shot("10-too-late")
    expect(tab.page.locator(".chosen")).to_have_count(0)
    tab.press("Edit")
    eventually(lambda: tab.said("user") == ["ask options"])
    sql = "SELECT answer FROM fleet.questions"
    assert database.value(sql) == "green"


def test_an_answer_after_the_deadline(
    deaf: None, window: Window, gateway: Gateway, database: Database
) -> None:
    """Words that came too late are given back, to be said in another way."""
    tab = window.open(gateway.url, "paged")
    tab.say("ask brief")
    tab.question("clarify")
    unheard(tab)
    database.fetch("SELECT fleet.move_clock('1 hour')")
    asked(database, "expired")
    tab.say("the left one")
    tab.is_told("Too late: the question has expired.")
    tab.question("clarify", "expired")
    tab.press("Edit")
    expect(tab.page.locator("#text")).to_have_value("the left one")
    eventually(lambda: tab.said("user") == ["ask brief"])


@pytest.mark.parametrize(
    ("ask", "kind", "act", "answer"),
    [
        ("options", "pick", ("press", "Blue"), {"label": "Blue"}),
        ("value", "value", ("write", '{"red": 2}'), {"red": 2}),
        ("value", "value", ("write", "two red ones"), "two red ones"),
        ("approve", "approve", ("press", "Approve"), {"decisions": [{"type": "approve"}]}),
    ],
)
def test_questions_of_other_graphs(
    window: Window,
    gateway: Gateway,
    database: Database,
    ask: str,
    kind: str,
    act: tuple[str, str],
    answer: Any,
) -> None:
    """Options and approvals are buttons, all else is a box for JSON or text; the text box of the
    chat waits until then."""
    tab = window.open(gateway.url, "paged")
    tab.say(f"ask {ask}")
    question = tab.question(kind)
    expect(tab.page.locator("#send")).to_be_disabled()
    tab.shot(f"11-{ask}")
    if act[0] == "press":
        question.get_by_role("button", name=act[1]).click()
    else:
        question.get_by_role("textbox").fill(act[1])
        question.get_by_role("button", name="Answer").click()
    tab.is_told("Answered:")
    expect(tab.page.locator("#send")).to_be_enabled()
    assert database.value("SELECT answer FROM fleet.questions") == answer


def test_a_rejection_has_its_reason(window: Window, gateway: Gateway, database: Database) -> None:
    """The note goes with it."""
    tab = window.open(gateway.url, "paged")
    tab.say("ask approve")
    question = tab.question("approve")
    expect(question).to_contain_text("Pay 5?")
    question.get_by_label("A note, if you like").fill("too much")
    question.get_by_role("button", name="Reject").click()
    tab.is_told("Answered:")
    rejected = {"decisions": [{"type": "reject", "message": "too much"}]}
    assert database.value("SELECT answer FROM fleet.questions") == rejected


def test_nothing_is_read_as_html(window: Window, gateway: Gateway) -> None:
    """Neither what people say nor what graphs ask: it stands there as it was written."""
    tab = window.open(gateway.url, "paged")
    tab.page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    tab.say(hostile)
    tab.is_told(f"Heard: {hostile}")
    tab.say("ask hostile")
    tab.question("select_room").locator(".card", has_text="<b onclick=alert(1)>bold</b>").click()
    tab.is_told("Answered:")
    tab.page.reload()
    tab.is_told(f"Heard: {hostile}")
    assert tab.page.locator("main").locator("img, script, b").count() == 0
    assert hostile in tab.said("user")


def test_a_tool_that_runs_is_shown(window: Window, gateway: Gateway, gate: Path) -> None:
    """With its arguments, after a reload too, until it has its result."""
    tab = window.open(gateway.url, "paged")
    tab.say("use rooms")
    running = tab.page.locator('#working[data-tool="look_up"]')
    expect(running).to_contain_text('{"what":"rooms"}')
    tab.shot("13-tool")
    tab.page.reload()
    expect(running).to_contain_text('{"what":"rooms"}')
    gate.touch()
    tab.rests()


def test_a_long_chat_is_read_page_by_page(window: Window, gateway: Gateway) -> None:
    """A reload shows its end; the rest comes as it is asked for."""
    tab = window.open(gateway.url, "paged")
    tab.say("bulk 1100")
    tab.is_told("line 1099")
    tab.page.reload()
    tab.is_told("line 1099")
    assert tab.said() == [f"line {n}" for n in range(1050, 1100)]
    tab.press("Earlier messages (1051)")
    tab.is_told("Earlier messages (1001)")
    assert tab.said() == [f"line {n}" for n in range(1000, 1100)]


def test_pages_that_show_nothing_are_passed_over(window: Window, gateway: Gateway) -> None:
    """An agent that calls tools many times in a row: one click leads to what was said before."""
    tab = window.open(gateway.url, "paged")
    tab.say("bulk 900")
    tab.is_told("line 899")
    tab.say("calls 75")
    tab.is_told("Looked up all.")
    tab.page.reload()
    tab.is_told("Looked up all.")
    assert tab.said() == ["Looked up all."]
    tab.press("Earlier messages (1003)")
    tab.is_told("Earlier messages (853)")
    assert tab.said() == [*(f"line {n}" for n in range(852, 900)), "calls 75", "Looked up all."]
    tab.press("Earlier messages (853)")
    tab.is_told("Earlier messages (803)")


def test_an_agent_that_is_not_there(window: Window, gateway: Gateway) -> None:
    """The page says so, and does not ask again and again."""
    tab = window.open(gateway.url, "nobody", live=False)
    tab.is_told("There is no agent “nobody” here.")
    tab.is_("stopped")


def test_stop(window: Window, gateway: Gateway) -> None:
    """What is asked is called off, in all tabs; the next message begins anew."""
    one, two = window.open(gateway.url), window.open(gateway.url)
    one.say("a room for 8 tomorrow at 2pm")
    two.question("select_room")
    one.press("Stop")
    for tab in one, two:
        tab.question("select_room", "closed")
        tab.is_told("Called off.")
        tab.rests()
    two.say("a room for 4 tomorrow at 3pm")
    expect(one.question("select_room").locator(".card").first).to_be_enabled()
