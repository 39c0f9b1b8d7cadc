"""Evaluator and optimizer in a loop, with a retry policy and a cache (LangGraph docs).

The generator fails at its first attempt of each round, as a model's API may.
"""

from typing import NotRequired

from langgraph.cache.memory import InMemoryCache
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import CachePolicy, RetryPolicy
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


class State(TypedDict):
    topic: str
    draft: NotRequired[str]
    rounds: NotRequired[int]
    grade: NotRequired[str]


def generate(state: State, runtime: Runtime) -> dict[str, object]:
    assert runtime.execution_info is not None
    if runtime.execution_info.node_attempt == 1:
        raise ConnectionError("the model is overloaded")
    rounds = state.get("rounds", 0) + 1
    return {"draft": model.invoke(f"{state['topic']} v{rounds}").text, "rounds": rounds}


def evaluate(state: State) -> dict[str, str]:
    return {"grade": "good" if state.get("rounds", 0) >= 3 else "poor"}


def decide(state: State) -> str:
    return END if state.get("grade") == "good" else "generate"


builder = StateGraph(State)
builder.add_node(
    "generate",
    generate,
    retry_policy=RetryPolicy(initial_interval=0.01, max_attempts=3, jitter=False),
)
builder.add_node("evaluate", evaluate, cache_policy=CachePolicy(ttl=60))
builder.add_edge(START, "generate")
builder.add_edge("generate", "evaluate")
builder.add_conditional_edges("evaluate", decide, ["generate", END])
graph = builder.compile(cache=InMemoryCache())
