"""Made for each run by its config, with a step that hangs at first (LangGraph docs, "Graph API").

The config is the start's, and holds for the answer's run too.
"""

import asyncio
from typing import Any, NotRequired

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import RetryPolicy, TimeoutPolicy, interrupt
from scripted import Scripted, echo
from typing_extensions import TypedDict


class State(TypedDict):
    topic: str
    draft: NotRequired[str]
    signed: NotRequired[list[Any]]


def make_graph(config: RunnableConfig):
    name = config.get("configurable", {}).get("model", "none")
    model = Scripted(answer=echo)

    async def generate(state: State, runtime: Runtime) -> dict[str, str]:
        assert runtime.execution_info is not None
        if runtime.execution_info.node_attempt == 1:
            await asyncio.sleep(60)
        return {"draft": f"{(await model.ainvoke(state['topic'])).text} by {name}"}

    def sign(state: State, config: RunnableConfig) -> dict[str, list[Any]]:
        configured = config.get("configurable", {})
        answer = interrupt({"draft": state.get("draft")})
        return {"signed": [answer, name, configured.get("city"), sorted(config.get("tags") or [])]}

    builder = StateGraph(State)
    builder.add_node(
        "generate",
        generate,
        timeout=TimeoutPolicy(run_timeout=0.3),
        retry_policy=RetryPolicy(initial_interval=0.01, jitter=False),
    )
    builder.add_node("sign", sign)
    builder.add_edge(START, "generate")
    builder.add_edge("generate", "sign")
    return builder
