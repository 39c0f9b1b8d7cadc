"""A chat that does what it is told, for pages: it streams with a pause, and asks in every way.

Where it pauses it waits for the file that PAGED_GATE names; each attempt leaves a line in
`{PAGED_GATE}.attempts`.
"""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

QUESTIONS: dict[str, Any] = {
    "clarify": {"kind": "clarify", "message": "Which one?", "phase": "ASKING"},
    "brief": {"kind": "clarify", "message": "Quickly: which?", "expires_in": 600},
    "options": {"kind": "pick", "message": "Which colour?", "options": ["red", {"label": "Blue"}]},
    "value": {"message": "How many of each?"},
    "approve": {
        "action_requests": [{"name": "pay", "args": {"amount": 5}, "description": "Pay 5?"}],
        "review_configs": [{"action_name": "pay", "allowed_decisions": ["approve", "reject"]}],
    },
    "hostile": {
        "kind": "select_room",
        "message": "<img src=x onerror=alert(1)> ?",
        "data": {"candidates": [{"id": "1", "name": "<b onclick=alert(1)>bold</b>"}]},
    },
}


class Slow(GenericFakeChatModel):
    """Streams its words, and waits for the gate at a `|`."""

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for word in str(messages[-1].content).split(" "):
            if word == "|":
                _wait()
                continue
            yield ChatGenerationChunk(message=AIMessageChunk(f"{word} "))
            time.sleep(0.01)


def reply(state: MessagesState) -> dict[str, Any]:
    word, _, rest = str(state["messages"][-1].content).partition(" ")
    if word == "ask":
        answer = interrupt(QUESTIONS[rest])
        return {"messages": [AIMessage(f"Answered: {answer}")]}
    if word == "stream":
        half, attempt = int(rest) // 2, _attempt()
        words = [f"{attempt}.{n}" for n in range(2 * half)]
        said = " ".join([*words[:half], "|", *words[half:]])
        return {"messages": [Slow(messages=iter(())).invoke([HumanMessage(said)])]}
    if word == "bulk":
        return {"messages": [AIMessage(f"line {n}", id=f"line-{n}") for n in range(int(rest))]}
    if word == "calls":
        return {"messages": [*_calls(int(rest)), AIMessage("Looked up all.")]}
    if word == "use":
        call = {"name": "look_up", "args": {"what": rest}, "id": f"call-{uuid.uuid4()}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    return {"messages": [AIMessage(f"Heard: {word} {rest}".rstrip())]}


def _calls(count: int) -> Iterator[BaseMessage]:
    """What an agent does between two sentences."""
    for n in range(count):
        name = f"look-{uuid.uuid4()}"
        yield AIMessage("", tool_calls=[{"name": "look_up", "args": {"what": n}, "id": name}])
        yield ToolMessage("nothing", tool_call_id=name)


def look_up(state: MessagesState) -> dict[str, Any]:
    """A tool that takes its time."""
    asked = state["messages"][-1]
    assert isinstance(asked, AIMessage)
    _wait()
    return {"messages": [ToolMessage("nothing", tool_call_id=asked.tool_calls[0]["id"])]}


def _after_reply(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "look_up" if isinstance(last, AIMessage) and last.tool_calls else END


def _wait() -> None:
    gate = Path(os.environ["PAGED_GATE"])
    deadline = time.monotonic() + 90
    while not gate.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def _attempt() -> int:
    """Which one it is, from 1."""
    book = Path(f"{os.environ['PAGED_GATE']}.attempts")
    with book.open("a") as file:
        file.write("x\n")
    return len(book.read_text().splitlines())


graph = (
    StateGraph(MessagesState)
    .add_node("reply", reply)
    .add_node("look_up", look_up)
    .add_edge(START, "reply")
    .add_conditional_edges("reply", _after_reply, ["look_up", END])
    .add_edge("look_up", END)
    .compile()
)
