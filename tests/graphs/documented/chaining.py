"""Prompt chaining with a gate (LangGraph docs, "Workflows and agents")."""

from typing import NotRequired

from langgraph.graph import END, START, StateGraph
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


class State(TypedDict):
    topic: str
    joke: NotRequired[str]
    improved: NotRequired[str]
    final: NotRequired[str]


def generate(state: State) -> dict[str, str]:
    return {"joke": model.invoke(f"a joke about {state['topic']}").text}


def punchline(state: State) -> str:
    return "fail" if "?" in state["joke"] else "pass"


def improve(state: State) -> dict[str, str]:
    return {"improved": model.invoke(f"{state['joke']}, with wordplay").text}


def polish(state: State) -> dict[str, str]:
    return {"final": model.invoke(f"{state['improved']}, with a twist").text}


builder = StateGraph(State)
builder.add_node("generate", generate)
builder.add_node("improve", improve)
builder.add_node("polish", polish)
builder.add_edge(START, "generate")
builder.add_conditional_edges("generate", punchline, {"pass": "improve", "fail": END})
builder.add_edge("improve", "polish")
builder.add_edge("polish", END)
