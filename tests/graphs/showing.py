"""Graphs in which what is said, and when, is not what the state has in the end."""

import operator
import os
import threading
import time
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import RetryPolicy, interrupt
from typing_extensions import TypedDict

from tests.graphs.talking import Words

#: Names the file for which nodes wait.
GATE = "FLEET_TEST_GATE"


class Unnamed(TypedDict, total=False):
    """Messages as plain data, which get no ids."""

    messages: Annotated[list[dict[str, Any]], operator.add]


class Keeping(MessagesState, total=False):
    """With something beside the messages."""

    kept: Any


def _graph(*steps: Any, state: Any = MessagesState, **options: Any) -> Any:
    """One after the other; several in a tuple are side by side."""
    builder = StateGraph(state)
    before = [START]
    for n, step in enumerate(steps):
        now = [f"n{n}-{m}" for m in range(len(step))] if isinstance(step, tuple) else [f"n{n}"]
        for name, node in zip(now, step if isinstance(step, tuple) else [step], strict=True):
            builder.add_node(name, node, **options)
            for one in before:
                builder.add_edge(one, name)
        before = now
    return builder.compile()


def _last(state: MessagesState) -> AnyMessage:
    return state["messages"][-1]


def _says(text: str, after: float = 0.0) -> Any:
    def node(state: MessagesState) -> dict[str, Any]:
        time.sleep(after)
        return {"messages": [AIMessage(text)]}

    return node


def _waits(state: MessagesState) -> dict[str, Any]:
    while not Path(os.environ[GATE]).exists():
        time.sleep(0.01)
    return {"messages": [AIMessage("at last")]}


def _plain(state: MessagesState) -> dict[str, Any]:
    return {"messages": [{"role": "assistant", "content": "as a dict"}, ("ai", "as a pair")]}


def _helped(state: MessagesState) -> dict[str, Any]:
    Words().invoke([HumanMessage("to itself")])
    return {"messages": [AIMessage("aloud")]}


def _stops(state: MessagesState) -> dict[str, Any]:
    words = Words().stream(state["messages"])
    next(words)
    _left.append(words)
    return {"messages": [AIMessage("something else")]}


def _redacts(state: MessagesState) -> dict[str, Any]:
    said = _last(state)
    said.content = "***"
    return {"messages": [said, AIMessage("done")]}


def _turns_round(state: MessagesState) -> dict[str, Any]:
    summary = AIMessage("in short", id=f"s{len(state['messages'])}")
    removed = RemoveMessage(id=REMOVE_ALL_MESSAGES)
    return {"messages": [removed, summary, *state["messages"]]}


def _speaks(state: MessagesState) -> dict[str, Any]:
    return {"messages": [Words().invoke(state["messages"])]}


def _fails_once(state: MessagesState) -> dict[str, Any]:
    name = str(_last(state).id)
    if name not in _tried:
        _tried.add(name)
        raise ConnectionError
    return {"messages": [AIMessage("after all")]}


def _inside(state: MessagesState) -> dict[str, Any]:
    _private.invoke({"messages": [HumanMessage("a question of its own")]})
    return {"messages": [AIMessage("the sum of it")]}


def _speaks_and_asks(state: MessagesState) -> dict[str, Any]:
    said = Words().invoke(state["messages"])
    answer = interrupt({"kind": "clarify", "message": "Which?"})
    return {"messages": [said, AIMessage(f"So {answer}.")]}


def _asks(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"So {interrupt({'kind': 'clarify', 'message': 'Which?'})}.")]}


def _counts(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"{len(state['messages'])} messages")]}


def _forgets(state: MessagesState) -> dict[str, Any]:
    return {"messages": [RemoveMessage(id=str(_last(state).id)), AIMessage("forgotten")]}


def _changes(state: Keeping) -> dict[str, Any]:
    first, *others = state["messages"]
    if first.text == _last(state).text:
        return {}
    first.content = "***"
    return {"messages": [first, RemoveMessage(id=str(others[0].id))]}


def _keeps(state: Keeping) -> dict[str, Any]:
    said = [m.text for m in state["messages"] if m.type == "human"][-1]
    return {"lock": {"kept": threading.Lock()}, "text": {"kept": "text"}}.get(said, {})


_left: list[Any] = []
_tried: set[str] = set()
_private = _graph(_speaks)
_again = RetryPolicy(max_attempts=2, initial_interval=0.01, jitter=False)

helped_first = _graph(_helped, _waits)
waits = _graph((_says("one"), _plain, _waits))
beside = _graph((_says("slow", 0.3), _says("fast")))
helped = _graph(_helped)
private = _graph(_inside)
stops = _graph(_stops)
redacts = _graph(_redacts)
turns_round = _graph(_turns_round)
plain = _graph(_plain)
retried = _graph(_graph(_speaks, _fails_once), retry_policy=_again)
speaks_and_asks = _graph(_speaks_and_asks)
asks_beside = _graph((_asks, _speaks))
counts = _graph(_counts)
forgets = _graph(_forgets)
keeps = _graph(_changes, _helped, _keeps, state=Keeping)
helped_beside = _graph((_says("slow", 0.3), _graph(_says("fast"))), _says("at last"))
unnamed = _graph(
    lambda state: {"messages": [{"role": "assistant", "content": "noted"}]}, state=Unnamed
)
