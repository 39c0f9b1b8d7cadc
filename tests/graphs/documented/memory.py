"""An async chat bot with a store across threads and a context (LangGraph docs, "Memory")."""

from dataclasses import dataclass
from typing import Any

from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import RetryPolicy, TimeoutPolicy
from scripted import Scripted, echo

model = Scripted(answer=echo)


@dataclass
class Context:
    user_id: str


async def remember(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
    assert runtime.store is not None
    last = state["messages"][-1]
    if "remember" in last.text:
        key = f"note-{len(state['messages'])}"
        await runtime.store.aput((runtime.context.user_id, "notes"), key, {"text": last.text})
    return {}


async def chat(state: MessagesState, runtime: Runtime[Context]) -> dict[str, Any]:
    assert runtime.store is not None
    get_stream_writer()({"progress": "looking"})
    found = await runtime.store.asearch((runtime.context.user_id, "notes"))
    notes = sorted(item.value["text"] for item in found)
    reply = await model.ainvoke([*state["messages"], ("user", f"notes: {notes}")])
    return {"messages": [reply]}


builder = StateGraph(MessagesState, context_schema=Context)
builder.add_node("remember", remember, retry_policy=RetryPolicy())
builder.add_node("chat", chat, timeout=TimeoutPolicy(run_timeout=30))
builder.add_edge(START, "remember")
builder.add_edge("remember", "chat")
graph = builder.compile(store=InMemoryStore())
