"""A person books a room on the chat page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.tabs import Tab, Window
from tests.gateway.serving import Gateway
from tests.harness import Database

pytestmark = pytest.mark.usefixtures("worker")


def booked(database: Database) -> int:
    found: int = database.value("SELECT count(*) FROM booking.bookings")
    return found


def test_say_pick_confirm_booked(window: Window, gateway: Gateway, database: Database) -> None:
    """A text box for what is missing, cards for the rooms, buttons for the last word."""
    tab = window.open(gateway.url)
    tab.shot("1-new")
    tab.say("a room tomorrow at 2pm")
    tab.question("clarify")
    expect(tab.page.get_by_label("Please tell me how many people.")).to_be_editable()
    tab.phase("COLLECTING_SLOTS")
    tab.shot("2-clarify")
    tab.say("8")
    cards = tab.question("select_room").locator(".card")
    tab.phase("AWAITING_SELECTION")
    tab.shot("3-select-room")
    name = cards.first.locator("strong").inner_text().partition(". ")[2]
    cards.first.click()
    tab.question("select_room", "answered")
    asked = tab.question("confirm")
    expect(asked.locator("dl")).to_contain_text(name)
    tab.phase("CONFIRMING")
    tab.shot("4-confirm")
    tab.press("Yes")
    tab.phase("BOOKED")
    tab.is_told("Booking id: B")
    tab.rests()
    tab.shot("5-booked")
    assert booked(database) == 1
    assert tab.said("user") == ["a room tomorrow at 2pm", "8", name, "Yes, please"]


def test_in_chinese(windows: Callable[..., Window], gateway: Gateway, database: Database) -> None:
    """A browser that prefers it gets the page in Chinese, and the agent follows its user."""
    tab = windows(locale="zh-CN").open(gateway.url)
    expect(tab.page.locator("html")).to_have_attribute("lang", "zh-CN")
    tab.say("明天下午2点8人会议室")
    cards = tab.question("select_room").locator(".card")
    expect(cards.first).to_contain_text("可容纳")
    tab.shot("zh-1-select-room")
    tab.say("选2")
    asked = tab.question("confirm")
    expect(asked.locator("dt").first).to_have_text("会议室")
    tab.press("是")
    tab.phase("BOOKED")
    tab.is_told("预订号：B")
    expect(tab.page.locator("#phase")).to_have_text("已预订")
    tab.shot("zh-2-booked")
    assert booked(database) == 1


def test_the_language_is_switched(window: Window, gateway: Gateway) -> None:
    """For all that the page itself says, at once, and still so after a reload."""
    tab = window.open(gateway.url)
    tab.say("a room for 8 tomorrow at 2pm")
    tab.question("select_room")
    tab.press("页面改用中文")
    expect(tab.page.locator("#send")).to_have_text("发送")
    expect(tab.question("select_room").locator(".card").first).to_contain_text("可容纳")
    tab.page.reload()
    tab.is_live()
    expect(tab.page.locator("#send")).to_have_text("发送")
    tab.press("Show this page in English")
    expect(tab.page.locator("#send")).to_have_text("Send")


def test_a_reload_in_the_middle(window: Window, gateway: Gateway, database: Database) -> None:
    """At each question: the conversation stands there again, each thing once, and goes on."""
    tab = window.open(gateway.url)
    tab.say("a room tomorrow at 2pm")
    for kind, answer in ("clarify", "8"), ("select_room", "the second one"), ("confirm", "yes"):
        tab.question(kind)
        before, session = tab.ids(), tab.session()
        tab.page.reload()
        tab.question(kind)
        assert tab.session() == session
        assert tab.ids() == before
        tab.say(answer)
    tab.phase("BOOKED")
    tab.page.reload()
    tab.phase("BOOKED")
    tab.is_told("Booking id: B")
    assert tab.said("user") == ["a room tomorrow at 2pm", "8", "the second one", "yes"]
    assert len(tab.ids()) == len(set(tab.ids()))
    assert booked(database) == 1


def test_a_change_of_mind_and_a_cancel(
    window: Window, gateway: Gateway, database: Database
) -> None:
    """Words answer a question with cards as well; what was offered before is switched off."""
    tab = window.open(gateway.url)
    tab.say("a room for 4 tomorrow at 2pm")
    tab.question("select_room")
    tab.say("actually 10 people")
    first = tab.page.locator('.question[data-kind="select_room"]').first
    expect(first).to_have_attribute("data-state", "answered")
    for card in first.locator(".card").all():
        expect(card).to_be_disabled()
    expect(tab.question("select_room").locator(".card").first).to_be_enabled()
    tab.say("cancel")
    tab.is_told("All right, cancelled. Nothing was booked.")
    tab.rests()
    assert booked(database) == 0


def test_a_new_conversation(window: Window, gateway: Gateway) -> None:
    """It is empty, and another one; the old one is let be."""
    tab = window.open(gateway.url)
    tab.say("a room for 4 tomorrow at 2pm")
    tab.question("select_room")
    before = tab.session()
    tab.press("New conversation")
    expect(tab.page.locator("#log > *")).to_have_count(0)
    tab.is_live()
    assert tab.session() not in (None, before)
    tab.say("hello")
    tab.question("clarify")
    assert tab.said("user") == ["hello"]


def fits(tab: Tab) -> bool:
    """Nothing has to be scrolled to from side to side."""
    found: bool = tab.page.evaluate(
        "[document.documentElement, document.querySelector('main')]"
        ".every(e => e.scrollWidth <= e.clientWidth)"
    )
    return found


def test_on_a_small_dark_screen(windows: Callable[..., Window], gateway: Gateway) -> None:
    """360 pixels do, and the colours follow the system's."""
    window = windows(viewport={"width": 360, "height": 640}, color_scheme="dark", has_touch=True)
    tab = window.open(gateway.url)
    tab.say("a room for 8 tomorrow at 2pm " + "x" * 200)
    cards = tab.question("select_room").locator(".card")
    assert fits(tab)
    tab.shot("dark-1-select-room")
    cards.first.tap()
    tab.question("confirm")
    assert fits(tab)
    tab.shot("dark-2-confirm")
    red = tab.page.evaluate("parseInt(getComputedStyle(document.body).backgroundColor.slice(4))")
    assert red < 64


def test_by_keyboard_alone(window: Window, gateway: Gateway) -> None:
    """From the text box back to the cards, and on to the last word; what is asked is read out."""
    tab = window.open(gateway.url)
    tab.say("a room for 8 tomorrow at 2pm")
    tab.question("select_room")
    expect(tab.page.locator("#announce")).to_contain_text("Which one would you like?")
    last = tab.page.locator(".card").last
    tab.page.locator("#text").focus()
    tab.page.keyboard.press("Shift+Tab")
    expect(last).to_be_focused()
    tab.page.keyboard.press("Enter")
    confirm = tab.question("confirm")
    tab.page.locator("#text").focus()
    tab.page.keyboard.press("Shift+Tab")
    tab.page.keyboard.press("Shift+Tab")
    expect(confirm.get_by_role("button", name="Yes")).to_be_focused()
    tab.page.keyboard.press("Space")
    tab.phase("BOOKED")
