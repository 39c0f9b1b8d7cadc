"""Graphs for AG-UI clients: one that talks, one that asks two things at once, one that uses a
tool, one that fails while it speaks, one that speaks and never ends by itself."""

import os
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from tests.graphs.talking import Words


class State(MessagesState, total=False):
    left: str
    right: str
    pause: float


def _answer(state: State) -> dict[str, Any]:
    get_stream_writer()({"name": "app.thinking", "value": {"hard": True}})
    return {"messages": [Words(pause=state.get("pause", 0.0)).invoke(state["messages"])]}


def _held(state: State) -> dict[str, Any]:
    """Speaks, and waits for a file in the middle: a turn that a test can kill there."""
    words = Words().stream(state["messages"])
    said = next(words)
    gate = Path(os.environ["AGUI_GATE"])
    while not gate.exists():
        time.sleep(0.02)
    for word in words:
        said += word
    return {"messages": [AIMessage(said.content, id=said.id)]}


def _rest(state: State) -> dict[str, Any]:
    time.sleep(0.02)
    return {}


def _left(state: State) -> dict[str, Any]:
    return {"left": interrupt({"kind": "clarify", "message": "Which day?", "phase": "asking"})}


def _right(state: State) -> dict[str, Any]:
    rooms = ["A", "B"]
    return {"right": interrupt({"kind": "select_room", "message": "Which room?", "data": rooms})}


def _told(state: State) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{state['left']} in {state['right']}.")]}


def _plan(state: State) -> dict[str, Any]:
    call = {"name": "look_up", "args": {"people": 8}, "id": "call-1"}
    return {"messages": [AIMessage("Let me see.", tool_calls=[call])]}


def _act(state: State) -> dict[str, Any]:
    return {"messages": [ToolMessage("3 rooms", tool_call_id="call-1", name="look_up")]}


def _breaks(state: State) -> dict[str, Any]:
    Words().invoke(state["messages"])
    raise ValueError("no such room")


def _one(node: Any) -> Any:
    builder = StateGraph(State).add_node("answer", node)
    return builder.add_edge(START, "answer").add_edge("answer", END).compile()


talk = _one(_answer)
held = _one(_held)
breaks = _one(_breaks)
endless = (
    StateGraph(State)
    .add_node("answer", _answer)
    .add_node("rest", _rest)
    .add_edge(START, "answer")
    .add_edge("answer", "rest")
    .add_edge("rest", "rest")
    .compile()
    .with_config(recursion_limit=1_000_000)
)
both = (
    StateGraph(State)
    .add_node("left", _left)
    .add_node("right", _right)
    .add_node("told", _told)
    .add_edge(START, "left")
    .add_edge(START, "right")
    .add_edge(["left", "right"], "told")
    .add_edge("told", END)
    .compile()
)
tools = (
    StateGraph(State)
    .add_node("plan", _plan)
    .add_node("act", _act)
    .add_node("answer", _answer)
    .add_edge(START, "plan")
    .add_edge("plan", "act")
    .add_edge("act", "answer")
    .add_edge("answer", END)
    .compile()
)
