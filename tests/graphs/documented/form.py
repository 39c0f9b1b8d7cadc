"""Several questions in one node, asked again until the answer is good (LangGraph docs)."""

from typing import Any, NotRequired

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt
from typing_extensions import TypedDict


class State(TypedDict):
    greeting: str
    name: NotRequired[str]
    age: NotRequired[int]


def collect(state: State) -> dict[str, Any]:
    name = interrupt("What is your name?")
    prompt = "What is your age?"
    while True:
        age = interrupt(prompt)
        if isinstance(age, int) and age > 0:
            return {"name": name, "age": age}
        prompt = f"{age!r} is not a valid age. What is your age?"


def greet(state: State) -> dict[str, str]:
    return {"greeting": f"{state['greeting']} {state.get('name')}, {state.get('age')}"}


builder = StateGraph(State)
builder.add_node(collect)
builder.add_node(greet)
builder.add_edge(START, "collect")
builder.add_edge("collect", "greet")
builder.add_edge("greet", END)
graph = builder.compile()
