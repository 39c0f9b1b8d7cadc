"""A person books a room on the chat page."""


import pytest
from playwright.sync_api import expect

from tests.browser.tabs import Window
from tests.gateway.serving import Gateway
from tests.harness import Database

pytestmark = pytest.mark.usefixtures("talking")


def booked(database: Database) -> list[str]:
    sql = "SELECT room_id FROM booking.bookings JOIN booking.rooms USING (room_no)"
    return [row[0] for row in database.fetch(sql)]


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
    expect(tab.bubble("Booking id: B")).to_be_visible()
    tab.rests()
    tab.shot("5-booked")
    assert len(booked(database)) == 1
    assert tab.said("user") == ["a room tomorrow at 2pm", "8", name, "Yes, please"]
