"""What `interrupt(response_schema=T)` takes, for each way of naming T: enforced at the door."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphs.registry import Registry
from infra.settings import get_settings
from producers import Fleet
from producers.cli.state import thread_in_full
from producers.errors import AnswerRefused
from tests.harness import Database, write_graphs
from workers.drain import drain
from workers.slot import Slot

GRAPHS = """
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Optional

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from typing_extensions import NotRequired, TypedDict


class State(TypedDict, total=False):
    said: Any


class Typed(TypedDict):
    count: int
    note: NotRequired[str]


@dataclass
class Data:
    count: int
    note: str = ""


class Color(Enum):
    RED = "red"
    BLUE = "blue"


def asking(schema):
    def ask(state):
        return {"said": repr(interrupt("which?", response_schema=schema))}

    builder = StateGraph(State)
    builder.add_node(ask)
    builder.add_edge(START, "ask")
    return builder


typed, data, color = asking(Typed), asking(Data), asking(Color)
literal, yes, union = asking(Literal["a", 2]), asking(bool), asking(int | list[str])
optional, mixed = asking(Optional[int]), asking(Typed | Literal["none"])
"""

#: What fits, and the node gets it so; what does not.
CASES: dict[str, tuple[Any, str, list[Any]]] = {
    "typed": ({"count": 3}, "{'count': 3}", [{}, {"count": "three"}, [3], None]),
    "data": (
        {"count": 3},
        "Data(count=3, note='')",
        [{}, {"count": 3, "note": 4}, "3", {"count": None}],
    ),
    "color": ("red", "<Color.RED: 'red'>", ["RED", "green", 1, ["red"]]),
    "literal": ("a", "'a'", ["b", 3, True, {"a": 2}]),
    "yes": (True, "True", ["maybe", 7, None, [True]]),
    "union": (["x"], "['x']", [[1], "many", {}, 1.5]),
    "optional": (None, "None", ["many", [1], 1.5]),
    "mixed": ("none", "'none'", ["some", {"count": "x"}, {"note": "y"}]),
}


@pytest.fixture
def slot(settings_env: None, tmp_path: Path, database: Database) -> Iterator[Slot]:
    (tmp_path / "typed_questions.py").write_text(GRAPHS)
    file = write_graphs(tmp_path, **{name: f"./typed_questions.py:{name}" for name in CASES})
    database.register(file)
    made = Slot(get_settings(), Registry.load(file), "fleet")
    yield made
    made.close()


@pytest.mark.parametrize("kind", CASES)
def test_an_answer_has_the_type_that_was_asked_for(slot: Slot, fleet: Fleet, kind: str) -> None:
    """What does not fit is refused and the question stays open; the node gets what does."""
    fits, got, wrong = CASES[kind]
    thread = fleet.submit(kind, "k", {}).thread_id
    assert drain(slot, thread)[-1]["outcome"] == "waiting"
    question = fleet.status(thread).question
    assert question is not None
    assert question.response_schema
    for value in wrong:
        with pytest.raises(AnswerRefused) as refused:
            fleet.answer(thread, question.question_id, value)
        assert refused.value.reason == "wrong_shape"
        assert fleet.status(thread).question == question
    fleet.answer(thread, question.question_id, fits)
    assert drain(slot, thread)[-1]["outcome"] == "done"
    assert thread_in_full(thread)["state"]["said"] == got
