"""Approve or reject, then go on where the answer leads (LangGraph docs, "Interrupts")."""

from typing import Any, Literal, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel, Field
from typing_extensions import TypedDict


class Reply(BaseModel):
    """What the question takes."""

    approved: bool
    comment: str = Field(max_length=200)


class State(TypedDict):
    details: str
    comment: NotRequired[str]
    status: NotRequired[Literal["pending", "approved", "rejected"]]


def approve(state: State) -> Command[Literal["proceed", "cancel"]]:
    question = {"question": "Approve this action?", "details": state["details"]}
    reply: Any = interrupt(question, response_schema=Reply)
    goto: Literal["proceed", "cancel"] = "proceed" if reply.approved else "cancel"
    return Command(goto=goto, update={"comment": reply.comment})


def proceed(state: State) -> dict[str, str]:
    return {"status": "approved"}


def cancel(state: State) -> dict[str, str]:
    return {"status": "rejected"}


builder = StateGraph(State)
builder.add_node(approve)
builder.add_node(proceed)
builder.add_node(cancel)
builder.add_edge(START, "approve")
builder.add_edge("proceed", END)
builder.add_edge("cancel", END)
graph = builder.compile()
