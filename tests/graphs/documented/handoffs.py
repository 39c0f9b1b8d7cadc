"""Agents as subgraphs that hand over to each other: Command(graph=PARENT) (LangGraph docs)."""

from typing import Annotated, Any

from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command
from scripted import Scripted, echo
from typing_extensions import TypedDict

model = Scripted(answer=echo)


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def agent(name: str, other: str, last: int):
    def think(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{name}: {model.invoke(state['messages']).text}")]}

    def hand_over(state: State) -> Any:
        if len(state["messages"]) > last:
            return {}
        return Command(goto=other, update={"messages": state["messages"]}, graph=Command.PARENT)

    builder = StateGraph(State)
    builder.add_node("think", think)
    builder.add_node("hand_over", hand_over)
    builder.add_edge(START, "think")
    builder.add_edge("think", "hand_over")
    return builder.compile()


builder = StateGraph(State)
builder.add_node("alice", agent("alice", "bob", 5), destinations=("bob",))
builder.add_node("bob", agent("bob", "alice", 5), destinations=("alice",))
builder.add_edge(START, "alice")
graph = builder.compile()
