"""Routing by a classifier, with Command(goto=...) (LangGraph docs, "Graph API")."""

from typing import Literal, NotRequired

from langgraph.graph import START, StateGraph
from langgraph.types import Command
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


class State(TypedDict):
    input: str
    output: NotRequired[str]


def route(state: State) -> Command[Literal["story", "poem"]]:
    return Command(goto="poem" if "poem" in state["input"] else "story")


def story(state: State) -> Command[Literal["sign"]]:
    return Command(goto="sign", update={"output": model.invoke(f"story: {state['input']}").text})


def poem(state: State) -> Command[Literal["sign"]]:
    return Command(goto="sign", update={"output": model.invoke(f"poem: {state['input']}").text})


def sign(state: State) -> dict[str, str]:
    return {"output": f"{state['output']} (signed)"}


builder = StateGraph(State)
for node in (route, story, poem, sign):
    builder.add_node(node)
builder.add_edge(START, "route")
graph = builder.compile()
