"""The official AG-UI client, HttpAgent of npm's @ag-ui/client, against a gateway and worker.

It checks each stream itself (order, shapes) and fails a run that breaks its rules. Needs node
and npm; the packages are those of package-lock.json, installed once into a folder of the cache
(or into INTEROP_FOLDER).
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from producers import Fleet
from tests.gateway.agui_turns import Working, write_agui_graphs
from tests.gateway.serving import Gateway
from tests.harness import Database, eventually
from workers.slot import Slot

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def packages(request: pytest.FixtureRequest) -> Path:
    """A folder with the client and its packages; skips where they can't be had."""
    lock = (HERE / "package-lock.json").read_bytes()
    given = os.environ.get("INTEROP_FOLDER")
    name = f"interop-{hashlib.sha256(lock).hexdigest()[:12]}"
    folder = Path(given) if given else Path(request.config.cache.mkdir(name))  # type: ignore[union-attr]
    folder.mkdir(exist_ok=True)
    for file in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(HERE / file, folder)
    if not (folder / "node_modules" / "@ag-ui" / "client").is_dir():
        if shutil.which("npm") is None:
            pytest.skip("npm is not here")
        argv = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=110)
        if done.returncode:
            pytest.skip(f"the packages can't be had: {done.stderr.strip()[-300:]}")
    return folder


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def working(slot: Slot, database: Database) -> Iterator[Working]:
    with Working(slot, database) as working:
        yield working


class Pages:
    """Pages in which HttpAgents run; `run(page, …)` gives what the page has then."""

    def __init__(self, folder: Path, url: str) -> None:
        self._url = f"{url}/agent/run"
        self._threads: dict[str, str] = {}
        self._process = subprocess.Popen(
            ["node", "client.mjs"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._out.readline() == "ready\n", self.errors()

    @property
    def _out(self) -> Any:
        return self._process.stdout

    def errors(self) -> str:
        self._process.kill()
        return self._process.communicate()[1]

    def ask(self, page: str, thread: str, **command: Any) -> None:
        """Begin a run; `answer()` waits for its end."""
        given = {"agent": page, "url": self._url, "threadId": thread, **command}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(given)}\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        line = self._out.readline()
        assert line, self.errors()
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, page: str, thread: str, **command: Any) -> dict[str, Any]:
        self.ask(page, thread, **command)
        return self.answer()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def pages(packages: Path, gateway: Gateway, working: Working) -> Iterator[Pages]:
    pages = Pages(packages, gateway.url)
    yield pages
    pages.close()


def texts(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(m["role"], m.get("content") or "") for m in told["messages"]]


def answers(told: dict[str, Any], **values: Any) -> list[dict[str, Any]]:
    return [
        {"interruptId": i["id"], "status": "resolved", "payload": values[i["metadata"]["kind"]]}
        for i in told["interrupts"]
    ]


def test_a_conversation(pages: Pages) -> None:
    """Run, stream, and run again with what the client holds."""
    told = pages.run("a", "talk:1", say="hi there", id="u1")
    assert (told["protocolVersion"], told["outcome"]) == ("1.0", "success")
    assert "TEXT_MESSAGE_CONTENT" in told["events"] and "CUSTOM" in told["events"]
    told = pages.run("a", "talk:1", say="again", id="u2")
    assert [text for _, text in texts(told)] == [
        "hi there",
        "You said hi there.",
        "again",
        "You said again.",
    ]


def test_two_questions_at_once(pages: Pages) -> None:
    """Interrupt, both answers in one resume, and the end."""
    told = pages.run("a", "both:1", say="book", id="u1")
    assert told["outcome"] == "interrupt" and len(told["interrupts"]) == 2
    told = pages.run("a", "both:1", resume=answers(told, clarify="Monday", select_room="B"))
    assert (told["outcome"], texts(told)[-1]) == ("success", ("assistant", "Monday in B."))
    assert told["state"]["right"] == "B"


def test_a_wrong_interrupt_id_is_refused(pages: Pages, fleet: Fleet) -> None:
    """And approves nothing; the right ones are taken afterwards."""
    told = pages.run("a", "both:1", say="book", id="u1")
    resume = answers(told, clarify="Monday", select_room="B")
    wrong = [resume[0], {**resume[1], "interruptId": "wrong"}]
    refused = pages.run("a", "both:1", resume=wrong, forget=True)
    assert refused["error"] == "stale_question" and len(fleet.status("both:1").questions) == 2
    assert pages.run("a", "both:1", resume=resume)["outcome"] == "success"


def test_tools_and_their_results(pages: Pages) -> None:
    """The client holds the call with its arguments, and the result after it."""
    told = pages.run("a", "tools:1", say="8 people", id="u1")
    assert [role for role, _ in texts(told)] == ["user", "assistant", "tool", "assistant"]
    assert told["messages"][1]["toolCalls"][0]["function"]["arguments"] == '{"people": 8}'


def test_cancel(pages: Pages, fleet: Fleet) -> None:
    """A cancelled question ends the run as cancelled, and the client may go on."""
    told = pages.run("a", "both:1", say="book", id="u1")
    resume = [{"interruptId": i["id"], "status": "cancelled"} for i in told["interrupts"]]
    told = pages.run("a", "both:1", resume=resume)
    assert told["outcome"] == "cancelled" and fleet.status("both:1").status == "cancelled"
    told = pages.run("a", "both:1", say="again", id="u2")
    assert told["outcome"] == "interrupt"


def test_a_page_joins_a_running_thread(pages: Pages, fleet: Fleet) -> None:
    """It stops listening in the middle; another page, and the same one, get the whole."""
    words = " ".join("abcdefghij")
    slow = {"input": {"pause": 0.1}}
    half = pages.run(
        "a", "talk:1", say=words, id="u1", props=slow, stopAfter="TEXT_MESSAGE_CONTENT"
    )
    assert texts(half)[-1][1] != f"You said {words}."
    other = pages.run("b", "talk:1")
    assert texts(other) == [("user", words), ("assistant", f"You said {words}.")]
    same = pages.run("a", "talk:1")
    assert texts(same) == texts(other)


def test_an_error_is_one_to_the_client(pages: Pages) -> None:
    """What was half said is gone."""
    told = pages.run("a", "breaks:1", say="hi", id="u1")
    assert told["error"] == "failed" and texts(told) == [("user", "hi")]


def test_a_run_outlives_its_page(pages: Pages, fleet: Fleet) -> None:
    """The page goes at once; the question is there for the next one."""
    pages.run("a", "both:1", say="book", id="u1", stopAfter="RUN_STARTED")
    eventually(lambda: fleet.status("both:1").status == "waiting", 20)
    assert len(pages.run("b", "both:1")["interrupts"]) == 2
