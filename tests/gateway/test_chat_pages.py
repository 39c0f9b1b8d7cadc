"""The messages of a chat, page by page over REST."""

from pathlib import Path

import httpx
import pytest

from tests.gateway.serving import problem
from tests.harness import Database, registered_graphs
from workers.drain import drain
from workers.slot import Slot

C1 = "/threads/talk/c1"


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    """Graphs that answer whatever they are told."""
    places = {"talk": "agui.py:talk", "unnamed": "showing.py:unnamed"}
    return registered_graphs(tmp_path, database, places)


@pytest.fixture
def told(client: httpx.Client, slot: Slot) -> list[str]:
    """The ids of a chat's ten messages, as the whole of it has them."""
    for number in range(5):
        message = {"role": "user", "content": f"word {number}", "id": f"u{number}"}
        sent = client.post(
            f"{C1}/messages",
            json={"input": {"messages": [message]}, "on_existing": "send"},
            headers={"Idempotency-Key": f"u{number}"},
        )
        assert sent.status_code == 202, sent.text
        drain(slot, "talk:c1")
    found = client.get(f"{C1}/messages").json()
    assert found["earlier"] == 0 and found["before"] is None
    assert [m["role"] for m in found["messages"]] == ["user", "assistant"] * 5
    return [m["message_id"] for m in found["messages"]]


def test_a_chat_is_read_from_its_end(client: httpx.Client, told: list[str]) -> None:
    """Each page names the one before it; together they are the chat, and nothing twice."""
    pages: list[list[str]] = []
    before = None
    while True:
        params = {"limit": 3} | ({"before": before} if before else {})
        page = client.get(f"{C1}/messages", params=params).json()
        pages.insert(0, [m["message_id"] for m in page["messages"]])
        before = page["before"]
        assert page["earlier"] == len(told) - sum(map(len, pages))
        if before is None:
            break
    assert [len(page) for page in pages] == [1, 3, 3, 3]
    assert [one for page in pages for one in page] == told


def test_a_page_before_a_message_that_is_not_there(client: httpx.Client, told: list[str]) -> None:
    """404: the client begins at the end again."""
    problem(client.get(f"{C1}/messages?before=nope"), 404, "unknown_message")
    problem(client.get("/threads/talk/c2/messages"), 404, "unknown_thread")


def test_messages_without_ids_have_pages_too(client: httpx.Client, slot: Slot) -> None:
    """They go by their places."""
    given = {"messages": [{"role": "user", "content": "hello"}]}
    url = "/threads/unnamed/c1/messages"
    sent = client.post(url, json={"input": given}, headers={"Idempotency-Key": "k"})
    assert sent.status_code == 202, sent.text
    drain(slot, "unnamed:c1")
    last = client.get(f"{url}?limit=1").json()
    assert [m["text"] for m in last["messages"]] == ["noted"]
    first = client.get(f"{url}?limit=1&before={last['before']}").json()
    assert [(m["message_id"], m["text"]) for m in first["messages"]] == [("messages:0", "hello")]
