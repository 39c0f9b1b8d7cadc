"""A chat model that answers by rule: the same messages always get the same answer."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    """`answer(messages)` gives text, or an AIMessage with tool calls."""

    answer: Callable[[list[BaseMessage]], str | AIMessage]
    tools: Sequence[Any] = ()

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> "Scripted":
        return self.model_copy(update={"tools": tools})

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        # As long as it takes for the step before to be written.
        time.sleep(0.005)
        said = self.answer(messages)
        message = AIMessage(said) if isinstance(said, str) else said
        return ChatResult(generations=[ChatGeneration(message=message)])


def echo(messages: list[BaseMessage]) -> str:
    """What was asked last, in capitals."""
    return str(messages[-1].content).upper()


def calls(*wanted: tuple[str, dict[str, Any], str]) -> AIMessage:
    """A message that calls tools: (name, arguments, id of the call)."""
    return AIMessage("", tool_calls=[{"name": n, "args": a, "id": i} for n, a, i in wanted])
