"""An agent with tools, two of which a person must allow (LangChain docs, "Human-in-the-loop")."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.tools import tool
from scripted import Scripted, calls


@tool
def look_up(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@tool
def write_file(name: str, text: str) -> str:
    """Write a file."""
    return f"wrote {text!r} to {name}"


@tool
def delete_file(name: str) -> str:
    """Delete a file."""
    return f"deleted {name}"


def answer(messages: list[BaseMessage]) -> Any:
    results = [m for m in messages if isinstance(m, ToolMessage)]
    if not results:
        return calls(("look_up", {"city": "Bern"}, "call-1"))
    if len(results) == 1:
        return calls(
            ("write_file", {"name": "w.txt", "text": str(results[0].content)}, "call-2"),
            ("delete_file", {"name": "old.txt"}, "call-3"),
        )
    return "; ".join(str(m.content) for m in results)


graph = create_agent(
    Scripted(answer=answer),
    [look_up, write_file, delete_file],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"write_file": True, "delete_file": True})],
)
