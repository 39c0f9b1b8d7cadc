"""A node that asks one thing after the other: each is a question of its own (G8)."""

from pathlib import Path

import pytest

from producers import Fleet
from producers.errors import AnswerRefused
from tests.harness import Database, write_graphs
from workers.drain import drain
from workers.slot import Slot

GRAPHS = """
from typing import Any

from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    said: Any


def asks(state):
    return {"said": [interrupt("first?"), interrupt("second?"), interrupt("second?")]}


def other(state):
    interrupt("beside?")


row = StateGraph(State).add_node(asks).add_edge(START, "asks").compile()
below = StateGraph(State).add_node("below", row).add_edge(START, "below").compile()
beside = (
    StateGraph(State).add_node(asks).add_node(other)
    .add_edge(START, "asks").add_edge(START, "other").compile()
)
"""


@pytest.fixture
def graphs_file(tmp_path: Path, database: Database) -> Path:
    (tmp_path / "asking.py").write_text(GRAPHS)
    names = ("row", "below", "beside")
    file = write_graphs(tmp_path, **{name: f"./asking.py:{name}" for name in names})
    database.register(file)
    return file


def turn(slot: Slot, thread: str) -> None:
    drain(slot, thread)


@pytest.mark.parametrize("graph", ["row", "below"])
def test_an_answer_given_twice_does_not_answer_the_next_question(
    graph: str, fleet: Fleet, slot: Slot
) -> None:
    """Each has an id of its own, and the second click on one is told that it was answered."""
    thread = fleet.submit(graph, "A", {}).thread_id
    turn(slot, thread)
    seen = []
    for value in ("one", "two", "three"):
        question = fleet.status(thread).question
        assert question is not None
        seen.append(question.question_id)
        fleet.answer(thread, question.question_id, value)
        turn(slot, thread)
        with pytest.raises(AnswerRefused) as again:
            fleet.answer(thread, question.question_id, "again")
        assert again.value.reason == "already_answered"
        turn(slot, thread)
    assert len(set(seen)) == 3
    assert fleet.status(thread).status == "done"


def test_a_question_keeps_its_id_while_another_is_answered(
    fleet: Fleet, slot: Slot, database: Database
) -> None:
    """Of two at once, the one that is left open is the same question still."""
    thread = fleet.submit("beside", "A", {}).thread_id
    turn(slot, thread)
    first, beside = sorted(
        fleet.status(thread).questions, key=lambda q: str(q.payload), reverse=True
    )
    assert (first.payload, beside.payload) == ("first?", "beside?")
    fleet.answer(thread, first.question_id, "one")
    turn(slot, thread)
    left = {q.payload: q.question_id for q in fleet.status(thread).questions}
    assert left["beside?"] == beside.question_id
    assert left["second?"] != first.question_id
    fleet.answer(thread, left["second?"], "two")
    # Accepted while the turn of the one before is still to come.
    fleet.answer(thread, beside.question_id, "yes")
    turn(slot, thread)
    (last,) = fleet.status(thread).questions
    assert (last.payload, last.question_id in left.values()) == ("second?", False)
    fleet.answer(thread, last.question_id, "three")
    turn(slot, thread)
    assert fleet.status(thread).status == "done"
    statuses = database.fetch("SELECT DISTINCT status FROM fleet.questions")
    assert statuses == [("answered",)]
