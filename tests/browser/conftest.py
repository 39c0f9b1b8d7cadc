"""The chat page in a real Chromium over a real gateway and real workers.

Screenshots go to $CI_ARTIFACTS, or to .ci/artifacts beside the tests.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.tabs import Window
from tests.gateway import conftest as gateways
from tests.harness import ROOT, Database
from tests.worker_processes import Worker, Workers

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
def fleet_settings(
    fleet_settings: dict[str, Any], database: Database, tmp_path: Path
) -> dict[str, Any]:
    """With the booking assistant, and `paged`, which does what it is told; `secret` is the
    same one, and sensitive."""
    path = tmp_path / "langgraph.json"
    paged = f"{ROOT}/tests/graphs/paged.py:graph"
    graphs = {
        "booking": f"{ROOT}/graphs/booking/graph.py:graph",
        "paged": paged,
        "secret": {"path": paged, "sensitive": True},
    }
    path.write_text(json.dumps({"dependencies": [str(ROOT)], "graphs": graphs}))
    database.register(path)
    return fleet_settings | {"graphs_file": path}


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `paged` waits for in the middle of its stream, once it is there."""
    gate = tmp_path / "gate"
    monkeypatch.setenv("PAGED_GATE", str(gate))
    return gate


@pytest.fixture
def worker(gate: Path, workers: Workers) -> Worker:
    """Takes what the pages say."""
    return workers.start(concurrency=2)


def _artifacts() -> Path:
    folder = Path(os.environ.get("CI_ARTIFACTS") or ROOT / ".ci" / "artifacts") / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
