"""Windows and tabs of a browser on the chat page, and what a person sees and does there."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect

#: ms for what a turn, or a gateway that comes back, takes on a busy machine.
PATIENCE = 60_000
#: Of what a page may say on its console: servers that are away.
_AWAY = re.compile("Failed to load resource|WebSocket connection to|net::ERR_")
expect.set_options(timeout=PATIENCE)


class Window:
    """A browser's window with its own memory. `said`: what its pages have complained of."""

    def __init__(self, browser: Browser, artifacts: Path, options: dict[str, Any]) -> None:
        given = {"locale": "en-GB", "viewport": {"width": 720, "height": 900}} | options
        self.context = browser.new_context(**given)
        self.context.set_default_timeout(PATIENCE)
        self.said: list[str] = []
        self._artifacts = artifacts

    def open(self, url: str, graph: str | None = None, *, live: bool = True) -> "Tab":
        """A tab on the chat page of the gateway at `url`."""
        page = self.page()
        tab = Tab(page, self._artifacts)
        page.goto(f"{url}/chat" + (f"?graph={graph}" if graph else ""))
        if live:
            tab.is_live()
        return tab

    def page(self) -> Page:
        """A tab without anything on it."""
        page = self.context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        return page

    def close(self) -> None:
        self.context.close()

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not _AWAY.search(message.text):
            self.said.append(message.text)


class Tab:
    """One tab on the chat page."""

    def __init__(self, page: Page, artifacts: Path) -> None:
        self.page = page
        self._artifacts = artifacts

    # What a person does

    def say(self, text: str) -> None:
        """Writes it into the text box and presses Enter."""
        self.page.locator("#text").fill(text)
        self.page.locator("#text").press("Enter")

    def press(self, name: str | re.Pattern[str]) -> None:
        self.page.get_by_role("button", name=name).click()

    # What a person sees

    def said(self, role: str | None = None) -> list[str]:
        """The texts of the bubbles, in their order."""
        found = self.page.locator(f".said{'.' + role if role else ''} > p").all_inner_texts()
        return [text.strip() for text in found]

    def bubble(self, text: str) -> Locator:
        return self.page.locator(".said > p", has_text=text)

    def question(self, kind: str, state: str = "open") -> Locator:
        """The question of that kind which was asked last, in that state."""
        found = self.page.locator(f'.question[data-kind="{kind}"]').last
        expect(found).to_have_attribute("data-state", state)
        return found

    def ids(self) -> list[str]:
        """The message_ids of the bubbles, in their order."""
        found: list[str] = self.page.locator(".said").evaluate_all(
            "all => all.map(one => one.dataset.id)"
        )
        return found

    def is_live(self) -> None:
        self.is_("live")

    def is_(self, state: str) -> None:
        """Waits until the connection is shown so."""
        expect(self.page.locator("#connection")).to_have_attribute("data-state", state)

    def phase(self, phase: str) -> None:
        """Waits until it is shown."""
        expect(self.page.locator("#phase")).to_have_attribute("data-phase", phase)

    def rests(self) -> None:
        """Waits until nothing is under way."""
        expect(self.page.locator("#working")).to_be_hidden()
        expect(self.page.locator(".pending, .streaming")).to_have_count(0)

    def is_told(self, text: str | re.Pattern[str]) -> None:
        """Waits until it stands somewhere on the page."""
        expect(self.page.get_by_text(text).last).to_be_visible()

    def session(self) -> str | None:
        """The id of its session, as it is kept."""
        found: str | None = self.page.evaluate(
            "graph => JSON.parse(localStorage.getItem(`fleet.session:${graph}`))",
            self.page.evaluate("new URLSearchParams(location.search).get('graph') || 'booking'"),
        )
        return found

    def shot(self, name: str) -> None:
        """A screenshot for people."""
        self.page.screenshot(path=self._artifacts / f"{name}.png")
