"""What a turn logs names the turn."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from graphs.registry import Registry
from infra import telemetry
from infra.settings import get_settings
from producers import Fleet
from tests.harness import Database, write_graphs
from workers.drain import drain
from workers.slot import Slot

GRAPH = """
import logging
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict):
    user_id: str

def speak(state):
    logging.getLogger("node").warning("from a node")
    return {}

graph = StateGraph(State)
graph.add_node("one", speak)
graph.add_node("two", speak)
graph.add_edge(START, "one")
graph.add_edge(START, "two")
graph = graph.compile()
"""


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Logs of this process, as a worker writes them with -l WARNING and `fleet.drain` more."""
    root, drained = logging.getLogger(), logging.getLogger("fleet.drain")
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    telemetry.configure("WARNING", stream := io.StringIO())
    drained.setLevel(logging.INFO)
    yield stream
    drained.setLevel(logging.NOTSET)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_each_line_of_a_turn_is_bound_to_it(
    settings_env: None, database: Database, fleet: Fleet, tmp_path: Path, logged: io.StringIO
) -> None:
    """Those of nodes that run side by side, and the one of its end."""
    (tmp_path / "speaking.py").write_text(GRAPH)
    file = write_graphs(tmp_path, speaking="./speaking.py:graph")
    database.register(file)
    slot = Slot(get_settings(), Registry.load(file), "fleet")
    receipt = fleet.submit("speaking", "A", {"user_id": "u"}, message_id="m-1")
    (done,) = drain(slot, receipt.thread_id)
    logging.getLogger("node").warning("after")
    slot.disconnect()
    *turn, after = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["logger"] for line in turn] == ["node", "node", "fleet.drain"]
    for line in turn:
        assert (line["thread"], line["message"], line["epoch"]) == (
            "speaking:A",
            "m-1",
            done["epoch"],
        )
    assert "thread" not in after
