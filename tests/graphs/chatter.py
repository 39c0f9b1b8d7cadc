"""A chat whose model streams the words that it is told to say, and that can ask."""

from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

ROOMS = [{"id": "r1", "name": "Aurora"}, {"id": "r2", "name": "Boreas"}]


def reply(state: MessagesState) -> dict[str, Any]:
    said = str(state["messages"][-1].content)
    word, _, rest = said.partition(" ")
    if word == "ask":
        question = {"kind": "clarify", "message": rest, "data": {}, "phase": "ASKING"}
        return _told(interrupt(question))
    if word == "choose":
        question = {"kind": "select_room", "message": rest, "data": {"candidates": ROOMS}}
        return _told(f"You chose {interrupt(question)}")
    if word == "fail":
        raise ValueError(rest)
    if word == "flood":
        write = get_stream_writer()
        for n in range(int(rest)):
            write({"n": n, "filler": "x" * 20_000})
        return _told("flooded")
    model = GenericFakeChatModel(messages=iter([AIMessage(f"You said {said}")]))
    return {"messages": [model.invoke([HumanMessage(said)])]}


def _told(text: Any) -> dict[str, Any]:
    return {"messages": [AIMessage(str(text))]}


graph = (
    StateGraph(MessagesState)
    .add_node("reply", reply)
    .add_edge(START, "reply")
    .add_edge("reply", END)
    .compile()
)
