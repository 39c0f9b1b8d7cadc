"""Conversations that stop in the middle of a step, with a tool call under way."""

from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, RemoveMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from langgraph.types import interrupt
from typing_extensions import TypedDict


class Halfway(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    topic: str


class Differences(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    topic: str


def begin(state: Any) -> dict[str, Any]:
    call = {"id": "c1", "name": "search", "args": {"for": "a room"}}
    return {"messages": [AIMessage("I look.", id="a1", tool_calls=[call])], "topic": "rooms"}


def quick(state: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("Found one.", id="a2"), RemoveMessage(id="u1")]}


def slow(state: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(f"You said {interrupt({'kind': 'clarify'})}.", id="a3")]}


def _graph(schema: Any) -> Any:
    builder = StateGraph(schema).add_node("begin", begin)
    builder.add_node("quick", quick).add_node("slow", slow)
    builder.add_edge(START, "begin").add_edge("begin", "quick").add_edge("begin", "slow")
    return builder.add_edge("quick", END).add_edge("slow", END).compile()


whole = _graph(Halfway)
differences = _graph(Differences)
