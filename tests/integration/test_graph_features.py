"""What a graph may ask of LangGraph, on a slot in this process against real servers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphs.inspection import problems
from graphs.registry import Registry
from infra import failpoints
from infra.settings import get_settings
from producers import Fleet
from producers.cli import main
from producers.errors import AnswerRefused, InvalidPayload
from tests.harness import Database, eventually, write_graphs
from workers.drain import drain
from workers.slot import Slot

GRAPHS = """
import asyncio
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt.interrupt import HumanInterrupt
from langgraph.runtime import Runtime
from langgraph.types import interrupt
from pydantic import BaseModel, field_validator
from typing_extensions import TypedDict

from graphs.effects import effect


class State(TypedDict, total=False):
    said: Any


@dataclass
class Context:
    user_id: str


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("it is odd")
        return value


def flow(*nodes, **options):
    builder = StateGraph(State, **options)
    before = START
    for node in nodes:
        builder.add_node(node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder


def ask(state):
    return {"said": interrupt("which number?", response_schema=Even).number}


even = flow(ask)


def approve(state):
    return {"said": interrupt([{"action_request": {"action": "pay", "args": {"n": 1}},
        "config": {"allow_accept": True, "allow_ignore": True, "allow_respond": False,
                   "allow_edit": False}, "description": "Pay?"}])}


legacy = flow(approve)


def who(state, runtime: Runtime[Context], config: RunnableConfig):
    conf = config["configurable"]
    answer = interrupt("go on?")
    return {"said": [answer, runtime.context.user_id, conf["city"], config["tags"][-1],
                     config["metadata"]["source"], conf["fleet_key"]]}


context = flow(who, context_schema=Context)


@effect("note")
def note(*, request_id):
    return "noted"


def first(state):
    return {"said": interrupt("first?")}


def between(state):
    note()


def second(state):
    return {"said": [state["said"], interrupt("second?")]}


nested = StateGraph(State)
nested.add_node("sub", flow(first, between, second).compile())
nested.add_edge(START, "sub")


stateless = StateGraph(State)
stateless.add_node("sub", flow(ask).compile(checkpointer=False))
stateless.add_edge(START, "sub")


def keep(state, runtime: Runtime):
    seen = runtime.store.get(("notes",), "n")
    runtime.store.put(("notes",), "n", {"count": (seen.value["count"] if seen else 0) + 1})
    return {"said": runtime.store.get(("notes",), "n").value}


store = flow(keep)


def made(config):
    def node(state):
        return {"said": config["configurable"].get("color")}

    return flow(node)


loops = []


async def awaited():
    # Belongs to the loop that it is made on.
    lock = asyncio.Lock()
    loops.append(asyncio.get_running_loop())

    async def node(state):
        async with lock:
            return {"said": asyncio.get_running_loop() is loops[-1]}

    return flow(node)
"""


@pytest.fixture
def slot(settings_env: None, tmp_path: Path, database: Database) -> Iterator[Slot]:
    (tmp_path / "mine.py").write_text(GRAPHS)
    names = ("even", "legacy", "context", "store", "made", "awaited", "stateless", "nested")
    file = write_graphs(tmp_path, **{name: f"./mine.py:{name}" for name in names})
    database.register(file)
    made = Slot(get_settings(), Registry.load(file), "fleet")
    yield made
    made.disconnect()


def state(slot: Slot, thread: str) -> Any:
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg.rows import dict_row

    with Database(get_settings().require_postgres()).connect(row_factory=dict_row) as conn:
        graph = slot.registry.get(thread.partition(":")[0]).graph
        found = graph.copy({"checkpointer": PostgresSaver(conn)})
        return found.get_state({"configurable": {"thread_id": thread}}).values.get("said")


def served(slot: Slot, thread: str) -> str:
    """The outcome of the turns that were due."""
    return str([done["outcome"] for done in drain(slot, thread)][-1])


def test_a_response_schema_is_enforced_at_the_door(slot: Slot, fleet: Fleet) -> None:
    """An answer that does not fit is refused, and the question stays open."""
    thread = fleet.submit("even", "k", {}).thread_id
    assert served(slot, thread) == "waiting"
    question = fleet.status(thread).question
    assert question is not None
    assert (question.kind, question.payload) == ("value", "which number?")
    for wrong in (7, {"number": "many"}, {}):
        with pytest.raises(AnswerRefused) as refused:
            fleet.answer(thread, question.question_id, wrong)
        assert refused.value.reason == "wrong_shape"
    fleet.answer(thread, question.question_id, {"number": 8})
    assert served(slot, thread) == "done"
    assert state(slot, thread) == 8


def test_show_says_what_a_question_takes(
    slot: Slot, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its response_schema, by which an answer is refused."""
    thread = fleet.submit("even", "k", {}).thread_id
    served(slot, thread)
    capsys.readouterr()
    assert main(["show", thread]) == 0
    takes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("takes: ")]
    taken = json.loads(takes[0].removeprefix("takes: "))
    assert taken["properties"]["number"]["type"] == "integer"


def test_what_only_the_graph_can_refuse_is_asked_again(slot: Slot, fleet: Fleet) -> None:
    """A validator of the type, which JSON Schema can't hold: the thread does not fail."""
    thread = fleet.submit("even", "k", {}).thread_id
    served(slot, thread)
    fleet.answer(thread, None, {"number": 7})
    assert served(slot, thread) == "waiting"
    status = fleet.status(thread)
    assert "it is odd" in str(status.last_error)
    assert [message.status for message in status.messages] == ["done", "done"]
    fleet.answer(thread, None, {"number": 6})
    assert served(slot, thread) == "done"
    assert state(slot, thread) == 6


def test_a_human_interrupt_of_old_is_an_approval(slot: Slot, fleet: Fleet) -> None:
    """Answered in one word, it gets the list of responses that it expects."""
    thread = fleet.submit("legacy", "k", {}).thread_id
    served(slot, thread)
    question = fleet.status(thread).question
    assert question is not None
    assert question.kind == "approve"
    with pytest.raises(AnswerRefused):
        fleet.answer(thread, None, [{"type": "response", "args": "why?"}])
    fleet.answer(thread, None, "approved")
    assert served(slot, thread) == "done"
    assert state(slot, thread) == [{"type": "accept", "args": None}]


CONFIG = {"configurable": {"city": "Bern"}, "tags": ["t"], "metadata": {"source": "web"}}


def test_context_and_config_hold_for_the_answer_too(slot: Slot, fleet: Fleet) -> None:
    """The run that goes on after a question has what the start brought."""
    receipt = fleet.submit("context", "k", {}, context={"user_id": "u1"}, config=CONFIG)
    thread = receipt.thread_id
    assert served(slot, thread) == "waiting"
    fleet.answer(thread, None, "yes")
    assert served(slot, thread) == "done"
    assert state(slot, thread) == ["yes", "u1", "Bern", "t", "web", "k"]


def test_later_input_may_change_the_context_alone(slot: Slot, fleet: Fleet) -> None:
    """What it does not give stays as it was."""
    receipt = fleet.submit("context", "k", {}, context={"user_id": "u1"}, config=CONFIG)
    thread = receipt.thread_id
    served(slot, thread)
    fleet.answer(thread, None, "yes")
    served(slot, thread)
    fleet.send(thread, {}, context={"user_id": "u2"})
    assert served(slot, thread) == "waiting"
    fleet.answer(thread, None, "again")
    served(slot, thread)
    assert state(slot, thread) == ["again", "u2", "Bern", "t", "web", "k"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"configurable": {"thread_id": "other"}}, "thread_id"),
        ({"callbacks": []}, "callbacks"),
        ({"recursion_limit": 0}, "below 1"),
        ({"tags": [1]}, "not text"),
    ],
)
def test_a_config_that_a_message_cannot_set_is_refused(
    fleet: Fleet, slot: Slot, database: Database, config: Any, said: str
) -> None:
    """Before anything is accepted."""
    with pytest.raises(InvalidPayload, match=said):
        fleet.submit("context", "k", {}, config=config)
    assert database.value("SELECT count(*) FROM fleet.messages") == 0


def test_the_lent_store_is_postgres_and_outlives_its_connection(
    slot: Slot, fleet: Fleet, database: Database
) -> None:
    """One for all threads; a session that was lost is replaced."""
    first = fleet.submit("store", "a", {}).thread_id
    assert served(slot, first) == "done"
    database.fetch(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE application_name LIKE 'fleet-store%%' AND datname = current_database()"
    )
    second = fleet.submit("store", "b", {}).thread_id
    assert served(slot, second) == "done"
    assert [state(slot, thread) for thread in (first, second)] == [{"count": 1}, {"count": 2}]


def test_a_factory_that_takes_the_config_makes_each_turns_graph(slot: Slot, fleet: Fleet) -> None:
    """It is called with the thread's own config."""
    for color in ("red", "blue"):
        config = {"configurable": {"color": color}}
        thread = fleet.submit("made", color, {}, config=config).thread_id
        assert served(slot, thread) == "done"
        assert state(slot, thread) == color


def test_an_async_factory_makes_its_graph_on_the_slots_loop(slot: Slot, fleet: Fleet) -> None:
    """What it opens there belongs to the loop on which the graph runs."""
    for key in ("a", "b"):
        thread = fleet.submit("awaited", key, {}).thread_id
        assert served(slot, thread) == "done"
        assert state(slot, thread) is True


def test_the_command_line_gives_context_and_config(slot: Slot, fleet: Fleet) -> None:
    """`fleet submit --context --config`."""
    given = ["--context", '{"user_id": "u3"}', "--config", json.dumps(CONFIG)]
    assert main(["submit", "context", "cli", *given, "--json"]) == 0
    assert served(slot, "context:cli") == "waiting"
    fleet.answer("context:cli", None, "yes")
    served(slot, "context:cli")
    assert state(slot, "context:cli") == ["yes", "u3", "Bern", "t", "web", "cli"]
    assert main(["submit", "context", "other", "--config", '{"x": 1}']) == 2
    assert [t.thread_id for t in fleet.threads()] == ["context:cli"]


def test_a_question_that_no_answer_can_reach_is_not_asked_for_ever(
    slot: Slot, fleet: Fleet
) -> None:
    """From a subgraph with checkpointer=False: the answer is dead, with the reason."""
    thread = fleet.submit("stateless", "k", {}).thread_id
    assert served(slot, thread) == "waiting"
    fleet.answer(thread, None, {"number": 4})
    assert served(slot, thread) == "dead"
    status = fleet.status(thread)
    assert (status.status, status.questions) == ("failed", [])
    assert "checkpointer=False" in str(status.last_error)
    (problem,) = problems(slot.registry.get("stateless"))
    assert "asks questions" in problem


def test_an_answer_that_a_lost_attempt_has_taken_leads_to_the_next_question(
    slot: Slot, fleet: Fleet
) -> None:
    """The next attempt begins behind the first question, and nothing in it takes the answer."""
    thread = fleet.submit("nested", "k", {}).thread_id
    assert served(slot, thread) == "waiting"
    fleet.answer(thread, None, "one")
    failpoints.arm("effect.after_call=disconnect:::1")
    try:
        assert served(slot, thread) == "lost"
    finally:
        failpoints.arm("")
    (again,) = eventually(lambda: drain(slot, thread))
    assert again["outcome"] == "waiting"
    assert fleet.status(thread).questions[0].payload == "second?"
    fleet.answer(thread, None, "two")
    assert served(slot, thread) == "done"
    assert state(slot, thread) == ["one", "two"]
