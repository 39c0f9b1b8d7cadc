"""The write-behind saver against LangGraph's own: same graph, same rows, fewer commits."""

import operator
import uuid
from collections.abc import Iterator
from typing import Annotated, Any

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command, Send, interrupt
from psycopg.rows import dict_row
from typing_extensions import TypedDict

from graphs.control import ClaimLost
from tests.harness import Database
from tests.integration.test_claim import accept, finish, take
from workers import inline
from workers.claim import Claim, StateUnstorable
from workers.head import inline as inlined
from workers.outcomes import Kind
from workers.saver import FleetSaver


class State(TypedDict, total=False):
    items: Annotated[list[str], operator.add]
    note: str
    ratio: float
    answer: Any


def first(state: State) -> State:
    return {"items": ["first"], "note": "text", "ratio": 0.5}


def fan(state: State) -> list[Send]:
    return [Send("part", {"items": [str(n)]}) for n in range(3)]


def part(state: State) -> State:
    return {"items": [f"part {state['items'][0]}"]}


def ask(state: State) -> State:
    return {"answer": interrupt({"question": "go on?"})}


def inner(state: State) -> State:
    return {"items": ["inner"]}


def build() -> StateGraph[State, None, State, State]:
    sub = StateGraph(State)
    sub.add_node("inner", inner)
    sub.add_edge(START, "inner")
    builder = StateGraph(State)
    builder.add_node("first", first)
    builder.add_node("part", part)
    builder.add_node("ask", ask)
    builder.add_node("sub", sub.compile())
    builder.add_edge(START, "first")
    builder.add_conditional_edges("first", fan, ["part"])
    builder.add_edge("part", "ask")
    builder.add_edge("ask", "sub")
    builder.add_edge("sub", END)
    return builder


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.session() as conn:
        yield conn


def saver(claim: Claim) -> FleetSaver:
    return FleetSaver(claim, JsonPlusSerializer(), RunControl())


def drive(conn: psycopg.Connection[Any], graph: Any, step: Any, kind: Kind, **end: Any) -> Claim:
    held = Claim(conn, take(conn, "A"))
    config = {"configurable": {"thread_id": "refund:A", "__pregel_checkpointer": saver(held)}}
    graph.invoke(step, config, durability=inline.install())
    finish(held, kind, **end)
    return held


def history(graph: Any, thread: str) -> list[Any]:
    config = {"configurable": {"thread_id": thread}}
    return [
        (s.metadata["step"], s.next, repr(s.values), [len(t.interrupts) for t in s.tasks])
        for s in graph.get_state_history(config)
    ]


def test_rows_are_those_of_langgraph_s_own_saver(conn: Any, database: Database) -> None:
    """Fan-out, interrupt, resume and subgraph leave the same history as with PostgresSaver."""
    graph = build().compile()
    accept(conn, "A", "m1")
    drive(conn, graph, {"items": []}, Kind.RELEASED)
    question = {"question_id": "q", "kind": "value", "payload": 1}
    with database.connect(row_factory=dict_row) as plain:
        stock = build().compile(checkpointer=PostgresSaver(plain))
        config = {"configurable": {"thread_id": "stock"}}
        stock.invoke({"items": []}, config)
        waiting = stock.get_state(config).interrupts[0].id
        assert history(stock, "refund:A") == history(stock, "stock")
        own = stock.get_state({"configurable": {"thread_id": "refund:A"}}).interrupts[0].id
        drive(conn, graph, Command(resume={own: "yes"}), Kind.DONE, questions=(question,))
        stock.invoke(Command(resume={waiting: "yes"}), config)
        assert history(stock, "refund:A") == history(stock, "stock")
        end = stock.get_state({"configurable": {"thread_id": "refund:A"}})
    assert end.values["answer"] == "yes"


def test_values_that_json_would_refuse_are_saved(conn: Any) -> None:
    """A NUL or a NaN at the top of the state does not make the save fail after the effect ran."""
    accept(conn, "A", "m1")
    builder = StateGraph(State)
    builder.add_node("odd", lambda state: {"note": "a\x00b", "ratio": float("inf")})
    builder.add_edge(START, "odd")
    drive(conn, builder.compile(), {"items": []}, Kind.DONE)
    head = PostgresSaver(conn).get_tuple({"configurable": {"thread_id": "refund:A"}})
    assert head is not None
    assert head.checkpoint["channel_values"]["note"] == "a\x00b"
    assert head.checkpoint["channel_values"]["ratio"] == float("inf")


def test_a_turn_without_effects_is_one_commit(conn: Any, database: Database) -> None:
    """Five checkpoints and their writes are committed with the end of the turn, not before."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    config = {"configurable": {"thread_id": "refund:A", "__pregel_checkpointer": saver(held)}}
    build().compile().invoke({"items": []}, config, durability=inline.install())
    assert database.value("SELECT count(*) FROM checkpoints") == 0
    finish(held, Kind.RELEASED)
    assert database.value("SELECT count(*) FROM checkpoints") > 2


def test_reads_come_from_the_buffer(conn: Any, database: Database) -> None:
    """State that no barrier has committed yet is what the graph reads back."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    own = saver(held)
    config = {"configurable": {"thread_id": "refund:A", "__pregel_checkpointer": own}}
    graph = build().compile()
    graph.invoke({"items": []}, config, durability=inline.install())
    assert own.root is not None and own.root.interrupted()
    state = graph.get_state(config)
    assert state.values["items"] == ["first", "part 0", "part 1", "part 2"]
    assert database.value("SELECT count(*) FROM checkpoints") == 0


def test_values_are_those_of_the_time_of_the_save(conn: Any) -> None:
    """A node that changes an object afterwards does not change what was saved."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    own = saver(held)
    value = {"a": [1]}
    checkpoint: Any = {
        "v": 4,
        "id": str(uuid.uuid4()),
        "ts": "",
        "channel_values": {"x": value},
        "channel_versions": {"x": "1"},
        "versions_seen": {},
        "updated_channels": None,
    }
    config: Any = {"configurable": {"thread_id": "refund:A", "checkpoint_ns": ""}}
    own.put(config, checkpoint, {"step": 0}, {"x": "1"})
    value["a"].append(2)
    loaded = own.get_tuple(config)
    assert loaded is not None and loaded.checkpoint["channel_values"]["x"] == {"a": [1]}


def test_state_that_cannot_be_stored_stops_the_turn(conn: Any) -> None:
    """After a failed save nothing may be sent: what runs after it could run twice."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    builder = StateGraph(State)
    builder.add_node("bad", lambda state: {"answer": (n for n in range(3))})
    builder.add_edge(START, "bad")
    config = {"configurable": {"thread_id": "refund:A", "__pregel_checkpointer": saver(held)}}
    with pytest.raises(TypeError):
        builder.compile().invoke({}, config, durability=inline.install())
    with pytest.raises(StateUnstorable):
        held.check()
    finish(held, Kind.DEAD, error="unstorable")


def test_a_closed_claim_saves_nothing(conn: Any, database: Database) -> None:
    """A left-over thread's put is refused and leaves no row."""
    accept(conn, "A", "m1")
    held = Claim(conn, take(conn, "A"))
    own = saver(held)
    finish(held, Kind.RELEASED)
    config: Any = {
        "configurable": {"thread_id": "refund:A", "checkpoint_ns": "", "checkpoint_id": "c"}
    }
    with pytest.raises(ClaimLost):
        own.put_writes(config, [("x", 1)], "task")
    assert database.value("SELECT count(*) FROM checkpoint_writes") == 0


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        (None, True),
        (True, True),
        ("plain", True),
        (1.5, True),
        (2**62, True),
        (2**63, False),
        (float("inf"), False),
        ("a\x00b", False),
        ("\ud800", False),
        ([1], False),
    ],
)
def test_only_what_json_keeps_is_inlined(value: Any, fits: bool) -> None:
    """Values that JSON would refuse or change go to the blobs."""
    assert inlined(value) is fits
