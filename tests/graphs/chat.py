"""Chats with a history: with a subgraph, with a subgraph that remembers, with a DeltaChannel."""

import operator
from typing import Annotated, Any

from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    said: Annotated[list[str], operator.add]
    count: int


def answer(state: State) -> dict[str, Any]:
    return {"said": [f"answer to {state['said'][-1]}"], "count": len(state["said"])}


def _graph(schema: Any, node: Any) -> Any:
    return (
        StateGraph(schema)
        .add_node("answer", node)
        .add_edge(START, "answer")
        .add_edge("answer", END)
        .compile()
    )


def _sub(remembers: bool) -> Any:
    def note(state: dict[str, Any]) -> dict[str, Any]:
        return {"count": len(state["said"]), "notes": ["noted"]}

    class Notes(TypedDict, total=False):
        said: Annotated[list[str], lambda old, new: new or old]
        count: int
        notes: Annotated[list[str], operator.add]

    builder = StateGraph(Notes).add_node("note", note).add_edge(START, "note").add_edge("note", END)
    return builder.compile(checkpointer=True if remembers else None)


def _fold(said: list[str], writes: list[list[str]]) -> list[str]:
    return [*said, *(one for write in writes for one in write)]


class Delta(TypedDict, total=False):
    said: Annotated[list[str], DeltaChannel(_fold, snapshot_frequency=3)]


chat = _graph(State, answer)
nested = _graph(State, _sub(remembers=False))
remembering = _graph(State, _sub(remembers=True))
delta = _graph(Delta, lambda state: {"said": [f"answer to {state['said'][-1]}"]})
