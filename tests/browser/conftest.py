"""The chat page in a real Chromium over a real gateway and real workers.

Screenshots go to $CI_ARTIFACTS, or to .ci/artifacts beside the tests.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.tabs import Tab, Window
from tests.gateway import conftest as gateways
from tests.harness import ROOT

gateway = gateways.gateway
guarded = gateways.guarded
serve = gateways.serve

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_QUIET = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no browser nothing is shown, and that is said."""
    if _CHROMIUM is None:
        for item in items:
            if "tests/browser" in str(item.path):
                item.add_marker(pytest.mark.skip(reason="no chromium is installed"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=[*_QUIET])
        yield browser
        browser.close()


@pytest.fixture
def windows(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Opens windows: what one keeps (sessions, tokens) another does not see. At the end none of
    their pages may have broken its own policy or failed."""
    opened: list[Window] = []

    def window(**options: Any) -> Window:
        opened.append(Window(browser, _artifacts(), options))
        return opened[-1]

    yield window
    said = [text for window in opened for text in window.said]
    for window in opened:
        window.close()
    assert said == []


@pytest.fixture
def window(windows: Callable[..., Window]) -> Window:
    return windows()


@pytest.fixture
def talking(workers: Any) -> None:
    """A worker that takes what the pages say."""
    workers.start(concurrency=2)


OpenTab = Callable[..., Tab]


def _artifacts() -> Path:
    folder = Path(os.environ.get("CI_ARTIFACTS") or ROOT / ".ci" / "artifacts") / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
