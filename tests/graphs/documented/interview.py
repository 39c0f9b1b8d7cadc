"""A subgraph that remembers and asks, visited again and again (LangGraph docs, "Subgraphs")."""

import operator
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Talk(TypedDict):
    log: Annotated[list[str], operator.add]
    heard: Annotated[list[str], operator.add]


def ask(state: Talk) -> dict[str, list[str]]:
    answer = interrupt(f"question {len(state['heard']) + 1}")
    return {"heard": [answer]}


def note(state: Talk) -> dict[str, list[str]]:
    return {"log": [f"heard {', '.join(state['heard'])}"]}


talk = StateGraph(Talk)
talk.add_node(ask)
talk.add_node(note)
talk.add_edge(START, "ask")
talk.add_edge("ask", "note")
talk.add_edge("note", END)


def once_more(state: State) -> Command[str]:
    return Command(
        goto="interview" if len(state["log"]) < 3 else [Send("sign", {"n": n}) for n in range(2)]
    )


def sign(state: dict) -> dict[str, list[str]]:
    return {"log": [f"signed {state['n']}: {interrupt({'sign': state['n']})}"]}


builder = StateGraph(State)
builder.add_node("interview", talk.compile(checkpointer=True))
builder.add_node("once_more", once_more, destinations=("interview", "sign"))
builder.add_node("sign", sign)
builder.add_edge(START, "interview")
builder.add_edge("interview", "once_more")
graph = builder.compile()
