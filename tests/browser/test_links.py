"""The page behind a one-time link."""

from typing import Any

import pytest

from producers import Fleet
from tests.browser.tabs import Window
from tests.gateway import test_links
from tests.gateway.serving import Gateway
from tests.harness import Database

link = test_links.link


@pytest.fixture
def tab(window: Window) -> Any:
    """A tab of a page that breaks no policy of its own."""
    return window.page()


def test_a_person_answers_by_the_link(
    tab: Any, gateway: Gateway, fleet: Fleet, link: str, database: Database
) -> None:
    """The page's own form passes every check of origin and policy, and looks as it is meant to."""
    tab.goto(gateway.url + link)
    assert tab.get_by_role("button").all_inner_texts() == ["Approve", "Reject"]
    assert tab.evaluate("getComputedStyle(document.body).maxWidth") != "none"
    tab.get_by_label("A note, if you like").fill("too much")
    tab.get_by_role("button", name="Reject").click()
    tab.get_by_role("heading", name="Thank you").wait_for()
    rejected = {"decisions": [{"type": "reject", "message": "too much"}]}
    assert test_links.question_of(database) == ("answered", rejected, "link:webhook")
    tab.goto(gateway.url + link)
    tab.get_by_text("This link has been used").wait_for()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_next_page_learns_nothing_of_the_link(
    tab: Any, gateway: Gateway, link: str, host: str
) -> None:
    """Whoever leaves the page, for the gateway's other pages or for another origin, sends no
    token along; from a page without a form no referrer at all."""
    other = f"{gateway.url.replace('127.0.0.1', host)}/healthz"
    for page, referrer in (link, f"{gateway.url}/"), ("/answer/" + "A" * 32, None):
        tab.goto(gateway.url + page)
        with tab.expect_request(other) as sent:
            tab.evaluate("url => { location.href = url }", other)
        assert sent.value.all_headers().get("referer") == referrer
        tab.wait_for_url(other)
