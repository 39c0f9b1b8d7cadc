"""Map-reduce with Send: an orchestrator and its workers (LangGraph docs, "Graph API")."""

import operator
from typing import Annotated, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


class State(TypedDict):
    topic: str
    subjects: NotRequired[list[str]]
    jokes: Annotated[list[str], operator.add]
    best: NotRequired[str]


class OneJoke(TypedDict):
    subject: str


def plan(state: State) -> dict[str, list[str]]:
    return {"subjects": [f"{state['topic']} {n}" for n in range(5)]}


def fan_out(state: State) -> list[Send]:
    return [Send("joke", {"subject": subject}) for subject in state.get("subjects", [])]


def joke(state: OneJoke) -> dict[str, list[str]]:
    return {"jokes": [model.invoke(f"joke: {state['subject']}").text]}


def judge(state: State) -> dict[str, str]:
    return {"best": max(state["jokes"])}


builder = StateGraph(State)
builder.add_node(plan)
builder.add_node("joke", joke, input_schema=OneJoke)
builder.add_node(judge)
builder.add_edge(START, "plan")
builder.add_conditional_edges("plan", fan_out, ["joke"])
builder.add_edge("joke", "judge")
builder.add_edge("judge", END)
graph = builder.compile()
