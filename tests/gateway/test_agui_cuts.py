"""A client that is cut off at random places of real runs, and comes back by id: it ends with
the thread's messages."""

import random
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from producers import Fleet
from tests.gateway.agui_streams import Client, valid_so_far
from tests.gateway.agui_turns import Working, streaming, write_agui_graphs
from tests.harness import Database
from workers.slot import Slot

MESSAGES = 6
WORDS = "a b c d e f g h i j k l m n o p"


@pytest.fixture
def graphs_file(settings_env: None, tmp_path: Path, database: Database) -> Path:
    return write_agui_graphs(tmp_path, database)


@pytest.fixture
def working(slot: Slot, database: Database) -> Iterator[Working]:
    with Working(slot, database) as working:
        yield working


@pytest.mark.parametrize("graph", ["talk", "tools"])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_transcript_is_that_of_a_client_that_was_never_cut(
    client: httpx.Client, working: Working, fleet: Fleet, graph: str, seed: int
) -> None:
    """Also where one event of the thread is several of AG-UI's and the cut is between them."""
    rng = random.Random(seed)
    thread, told, last = f"{graph}:1", Client(), None
    for n in range(MESSAGES):
        message = {"role": "user", "content": WORDS, "id": f"u{n}"}
        given = {"messages": [message], "pause": 0.01}
        if n == 0:
            fleet.submit(graph, "1", given, message_id="u0")
        else:
            fleet.wait(thread, 30)
            fleet.send(thread, given, message_id=f"u{n}")
        while told.outcome is None or told.runs <= n:
            query = {"thread_id": thread, **({"from_event_id": last} if last else {})}
            left = rng.choice([1, 2, 3, 5, 8, 30])
            events = []
            with streaming(client, "GET", "/agent/events", params=query) as stream:
                for event in stream:
                    events.append(event)
                    left -= 1
                    if left <= 0 or event["type"] == "RUN_FINISHED":
                        break
                last = stream.last_id or last
            valid_so_far(events)
            told.take(events)
    state = client.get("/agent/state", params={"thread_id": thread}).json()
    assert {m["id"]: (m["role"], m.get("content") or "") for m in told.messages} == {
        m["id"]: (m["role"], m.get("content") or "") for m in state["messages"]
    }
    assert len(state["messages"]) >= 2 * MESSAGES
