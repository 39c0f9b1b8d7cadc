"""Masked state: nothing plain reaches a checkpoint, and each attempt sees the same."""

import json
import operator
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from graphs.masked_state import mask_state, masked
from graphs.registry import Registry
from infra.errors import RegistryError
from infra.masking import Rule
from tests.harness import write_graphs

PHONE = "13812341234"
CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    phone: str
    note: str
    found: Annotated[list[dict[str, Any]], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]


def stored(saver: InMemorySaver) -> str:
    """Everything that the saver holds, as text."""
    return repr((dict(saver.storage), dict(saver.writes), dict(saver.blobs)))


def run(graph: Any, given: Any) -> tuple[Any, str]:
    """(values, everything stored) of a masked graph's run."""
    saver = InMemorySaver()
    values = masked(graph, Rule()).copy({"checkpointer": saver}).invoke(given, CONFIG)
    return values, stored(saver)


def one(node: Any, schema: Any = State) -> Any:
    return StateGraph(schema).add_node("n", node).add_edge(START, "n").add_edge("n", END).compile()


def test_the_input_and_what_nodes_return_are_masked() -> None:
    """By name and in text; the node sees what a replay would see."""
    seen: list[State] = []

    def node(state: State) -> State:
        seen.append(state)
        return {"found": [{"customer": {"email": "li@example.com"}}], "note": f"call {PHONE}"}

    values, kept = run(one(node), {"phone": PHONE, "note": "x"})
    assert seen[0]["phone"] == "138****1234"
    assert values["found"] == [{"customer": {"email": "l***@example.com"}}]
    assert values["note"] == "call 138****1234"
    assert PHONE not in kept and "li@example" not in kept and "138****1234" in kept


def test_messages_are_masked_and_stay_messages() -> None:
    """Their ids too stay what they are."""

    def node(state: State) -> State:
        call = {"name": "pay", "args": {"card": "4111111111111111"}, "id": "call_1"}
        return {"messages": [AIMessage(f"I call {PHONE}", tool_calls=[call], id="a1")]}

    values, kept = run(one(node), {"messages": [HumanMessage(f"I am {PHONE}", id="h1")]})
    human, ai = values["messages"]
    assert (human.content, human.id) == ("I am 138****1234", "h1")
    assert ai.tool_calls[0]["args"] == {"card": "**** **** **** 1111"}
    assert PHONE not in kept and "4111111111111111" not in kept


@pytest.mark.parametrize("update", [{"phone": PHONE}, [("phone", PHONE)]])
def test_commands_and_sends_are_masked(update: Any) -> None:
    """Updates in either form, and what a task is sent."""

    def node(state: State) -> Command[Any]:
        return Command(update=update, goto=[Send("worker", {"phone": PHONE, "note": PHONE})])

    def worker(state: State) -> State:
        return {"found": [dict(state)]}

    graph = StateGraph(State).add_node("n", node, destinations=("worker",))
    graph = graph.add_node("worker", worker).add_edge(START, "n")
    values, kept = run(graph.compile(), {"note": "x"})
    assert values["phone"] == "138****1234"
    assert values["found"] == [{"phone": "138****1234", "note": "138****1234"}]
    assert PHONE not in kept


def test_subgraphs_are_masked() -> None:
    """As a node, and called inside one; also when they are masked twice."""
    inner = one(lambda state: {"note": f"in {PHONE}"})
    calling = one(lambda state: {"note": inner.invoke({"phone": PHONE})["note"]})
    for graph in (one(inner), one(calling), calling):
        _, kept = run(graph, {"phone": PHONE})
        assert PHONE not in kept


def test_models_as_state_are_masked() -> None:
    """A pydantic state, and a model in it."""

    class Customer(BaseModel):
        phone: str

    class Model(BaseModel):
        customer: Customer | None = None
        note: str = ""

    def node(state: Model) -> dict[str, Any]:
        return {"customer": Customer(phone=PHONE)}

    values, kept = run(one(node, Model), {"note": PHONE})
    assert values["customer"] == Customer(phone="138****1234") and PHONE not in kept


def test_a_functional_graphs_input_and_result_are_masked() -> None:
    """`@entrypoint`; its saved value too."""

    @entrypoint()
    def flow(given: dict[str, str]) -> Any:
        return entrypoint.final(value={"seen": given["phone"]}, save={"phone": PHONE})

    values, kept = run(flow, {"phone": PHONE})
    assert values == {"seen": "138****1234"} and PHONE not in kept


def test_async_nodes_are_masked() -> None:
    """In the event loop, without another thread."""
    import asyncio

    async def node(state: State) -> State:
        return {"note": PHONE}

    saver = InMemorySaver()
    graph = masked(one(node), Rule()).copy({"checkpointer": saver})
    assert asyncio.run(graph.ainvoke({"phone": PHONE}, CONFIG))["note"] == "138****1234"
    assert PHONE not in stored(saver)


def test_a_graph_that_stops_to_ask_goes_on_with_the_same_state() -> None:
    """What the node saw before the question it sees after the answer."""
    seen: list[str] = []

    def node(state: State) -> State:
        seen.append(state["phone"])
        return {"note": interrupt("ok?")}

    saver = InMemorySaver()
    graph = masked(one(node), Rule()).copy({"checkpointer": saver})
    graph.invoke({"phone": PHONE}, CONFIG)
    values = graph.invoke(Command(resume="yes"), CONFIG)
    assert seen == ["138****1234"] * 2 and values["note"] == "yes"


def test_the_given_graph_is_left_as_it_was() -> None:
    """The copy is masked, the original is not."""
    graph = one(lambda state: {"note": PHONE})
    run(graph, {"phone": PHONE})
    plain = graph.invoke({"phone": PHONE})
    assert (plain["phone"], plain["note"]) == (PHONE, PHONE)
    assert masked(graph, None) is graph


def test_values_that_are_no_state_are_left_alone() -> None:
    """What a command resumes with is an answer."""
    command: Command[Any] = Command(resume=PHONE, goto="n")
    assert mask_state(command, Rule()) == command
    assert mask_state(None, Rule()) is None


# The graphs file

MODULE = """
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    phone: str
    note: str

def make(config):
    builder = StateGraph(State).add_node("n", lambda s: {"note": "13812341234"})
    return builder.add_edge(START, "n").add_edge("n", END).compile()

graph = make(None)
"""


@pytest.mark.parametrize("attribute", ["graph", "make"])
def test_the_graphs_file_says_what_is_masked(tmp_path: Path, attribute: str) -> None:
    """true, or the names of fields; for factories too."""
    (tmp_path / "m.py").write_text(MODULE)
    entry = {"path": f"./m.py:{attribute}"}
    file = write_graphs(tmp_path, all=entry | {"mask": True}, some=entry | {"mask": ["phone"]})  # type: ignore[arg-type]
    registry = Registry.load(file)
    given = {"phone": PHONE}
    for name, note in (("all", "138****1234"), ("some", PHONE)):
        graph = registry.get(name).made_anew({}, lambda work: work).graph
        assert graph.invoke(given) == {"phone": "138****1234", "note": note}
    assert registry.get("all").fingerprint == {"nodes": ["__start__", "n"]}


def test_a_mask_of_another_form_is_refused(tmp_path: Path) -> None:
    """With the graph's name and what may stand there."""
    file = tmp_path / "langgraph.json"
    file.write_text(json.dumps({"graphs": {"g": {"path": "./m.py:graph", "mask": "phone"}}}))
    with pytest.raises(RegistryError, match=r"mask for 'g'.*true or a list of field names"):
        Registry.load(file)
