"""A chat whose tool has failed for good: a call without its result. See docs/faults.md."""

from pathlib import Path

import pytest

from producers import Fleet
from tests.harness import ROOT, Database, write_graphs
from workers.drain import drain
from workers.slot import Slot

RESULT = {"messages": [{"role": "tool", "content": "outcome unknown", "tool_call_id": "call-1"}]}


@pytest.fixture
def graphs_file(database: Database, tmp_path: Path) -> Path:
    found = write_graphs(tmp_path, stuck=f"{ROOT}/tests/graphs/faults.py:stuck")
    database.register(found)
    return found


@pytest.mark.parametrize("word", ["retry", "drop"])
def test_a_call_without_its_result_is_given_one_and_the_chat_goes_on(
    word: str, slot: Slot, fleet: Fleet
) -> None:
    """The next message waits, no model is asked meanwhile; after the amendment it is served."""
    thread = fleet.submit("stuck", "c1", {"messages": "go"}).thread_id
    drain(slot, thread)
    assert fleet.status(thread).status == "failed"
    assert "of no use" in str(fleet.status(thread).last_error)
    fleet.send(thread, {"messages": "and?"})
    drain(slot, thread)
    assert [m.status for m in fleet.status(thread).messages] == ["dead", "pending"]
    fleet.amend(thread, "tools", RESULT)
    drain(slot, thread)
    getattr(fleet, word)(thread)
    drain(slot, thread)
    drain(slot, thread)
    found = fleet.status(thread)
    assert (found.status, found.last_error) == ("done", None)
    assert sorted(m.status for m in found.messages) == sorted(
        ["done", "done", "done" if word == "retry" else "dropped"]
    )
