"""The chat that `fleet bench live` talks to: a model that writes so many words at a pace.

It is told what to write: `stamps COUNT RATE` writes the time of each word, in seconds of the
clock that all processes of the machine share, `words COUNT RATE NAME` the same text each time.
RATE: words in a second.
"""

import time
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import END, START, MessagesState, StateGraph


def written(name: str, count: int) -> str:
    """What `words` writes."""
    return "".join(f"{name}.{n} " for n in range(count))


class Paced(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "paced"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        text = "".join(str(chunk.message.content) for chunk in self._stream(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    def _stream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> Iterator[ChatGenerationChunk]:
        kind, count, rate, name = f"{messages[-1].text} -".split()[:4]
        begun = time.monotonic()
        for n in range(int(count)):
            time.sleep(max(0.0, begun + n / float(rate) - time.monotonic()))
            word = f"{time.monotonic():.4f} " if kind == "stamps" else f"{name}.{n} "
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))


def _answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [Paced().invoke(state["messages"])]}


graph = (
    StateGraph(MessagesState)
    .add_node("answer", _answer)
    .add_edge(START, "answer")
    .add_edge("answer", END)
    .compile()
)
