"""Model calls under the ledger: a replay neither pays for them nor decides anew.

    model = recorded(init_chat_model("openai:gpt-5.2"))

It is a chat model as the one given is: tools are bound to it, agents take it, tokens are
streamed. In a turn each call is an effect (``model.call``): its answer is recorded, and a node
that runs again, after a crash or when its question was answered, gets that answer. Calls of
one node that may overlap name themselves, ``model.at("summary")``, and so do calls whose order
is not certain.

An answer that breaks off after some of its tokens were seen is not asked for again within the
turn: the turn comes back, and with that clients are told to forget them.
"""

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Self, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult, LLMResult
from langchain_core.runnables import Runnable, RunnableBinding
from pydantic import PrivateAttr
from typing_extensions import TypedDict

from graphs import faults
from graphs.control import RetryLater
from graphs.effects import AsyncEffect, Effect, Retry, effect
from graphs.values import plain

#: Providers whose answers say how they ended, whenever they have ended.
_SAY_WHY = frozenset({"langchain_openai"})


class _Stopped(Exception):
    """Carries what stops the turn (graphs.control) past code that looks for Exceptions only."""

    def __init__(self, stop: BaseException) -> None:
        super().__init__(str(stop))
        self.stop = stop


class Answer(TypedDict):
    """What is recorded: messages, as fields of AIMessage; ``{"content": "yes"}`` is one."""

    messages: list[dict[str, Any]]


class RecordedModel(BaseChatModel):
    """A chat model whose calls are effects; made by :func:`recorded`."""

    model: BaseChatModel
    label: str | None = None
    _sync: Effect[Answer] = PrivateAttr()
    _async: AsyncEffect[Answer] = PrivateAttr()

    def at(self, label: str) -> Self:
        """Tell calls of one node apart that may overlap, or whose order is not certain."""
        self._sync.at(label)  # raises ValueError for what is no label
        return self.model_copy(update={"label": label})

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """As the model's own, recorded."""
        bound = self.model.bind_tools(tools, **kwargs)
        if not isinstance(bound, RunnableBinding) or bound.bound is not self.model:
            raise TypeError(
                f"{type(self.model).__name__}.bind_tools gives something that can't be recorded: "
                f"{type(bound).__name__}"
            )
        return self.bind(**bound.kwargs).with_config(bound.config)

    @property
    def _llm_type(self) -> str:
        return self.model._llm_type

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return dict(self.model._identifying_params)

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.model._get_ls_params(stop=stop, **kwargs)

    def _resolve_model_profile(self) -> Any:
        return self.model.profile

    # Without `_stream`: langchain then calls these two, and the model's own way to generate
    # streams to the handlers of this run, which is what LangGraph listens to.

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        def once(conversation: list[Any], *, request_id: str) -> Answer:
            sent = _Sent(run_manager)
            try:
                found = self.model._generate_with_cache(
                    messages, stop=stop, run_manager=sent.manager, **kwargs
                )
                return _answer(self.model, found, sent)
            except Exception as exc:
                sent.broke_off(exc)
                raise

        return _result(self._bound(self._sync, once)(_conversation(messages)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        async def once(conversation: list[Any], *, request_id: str) -> Answer:
            sent = _AsyncSent(run_manager)
            try:
                found = await self.model._agenerate_with_cache(
                    messages, stop=stop, run_manager=sent.manager, **kwargs
                )
                return _answer(self.model, found, sent)
            except Exception as exc:
                sent.broke_off(exc)
                raise

        try:
            return _result(await self._bound(self._async, once)(_conversation(messages)))
        except (Exception, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as stop:
            raise _Stopped(stop) from stop

    async def agenerate(self, *args: Any, **kwargs: Any) -> LLMResult:
        """As the base class's, which takes what is no Exception for an answer."""
        try:
            return await super().agenerate(*args, **kwargs)
        except _Stopped as stopped:
            raise stopped.stop from None

    def _bound(self, declared: Any, once: Callable[..., Any]) -> Any:
        bound = copy.copy(declared if self.label is None else declared.at(self.label))
        bound._function = once
        return bound


def recorded(
    model: BaseChatModel | Runnable[Any, AIMessage],
    *,
    name: str = "model.call",
    timeout: float = 120.0,
    retry: Retry | None = None,
    key_ttl: str | float | timedelta = "30d",
) -> Any:
    """Record the calls of a chat model, or of one that tools were bound to.

    ``name``: the effect's. ``timeout``, seconds: ends an async call; a sync one keeps to what
    its own client was given. ``retry``: of rate limits, broken connections and the like; set the
    client's own retries to 0, which hold the slot and hear of no shutdown. ``key_ttl``: for how
    long a call that was begun is made again after a crash. Instructions (system messages) may
    change between a call and its replay, the conversation may not.
    Raises TypeError for what is no chat model.
    """
    if isinstance(model, RunnableBinding):
        made = recorded(model.bound, name=name, timeout=timeout, retry=retry, key_ttl=key_ttl)
        return made.bind(**model.kwargs).with_config(model.config)
    if not isinstance(model, BaseChatModel):
        raise TypeError(f"recorded takes a chat model; {type(model).__name__} is none")
    limits: Any = {"key_ttl": key_ttl, "retry": retry, "timeout": timeout}
    declare = effect(name, on_doubt="resend", at_once=True, **limits)
    # Caching, limits of the rate and forms of output are the model's own business.
    made = RecordedModel(model=model, cache=False, output_version="v0")
    made._sync = cast("Effect[Answer]", declare(_call))
    made._async = cast("AsyncEffect[Answer]", declare(_acall))
    return made


def _call(conversation: list[Any], *, request_id: str) -> Answer:
    """What the effect is declared with; each call brings its own."""
    raise NotImplementedError


async def _acall(conversation: list[Any], *, request_id: str) -> Answer:
    raise NotImplementedError


class _Sent:
    """Whether tokens of a call have gone out; ``manager`` notes it."""

    def __init__(self, manager: Any) -> None:
        self.tokens = 0
        self.manager = manager
        if manager is not None:
            self.manager = copy.copy(manager)
            for hook in ("on_llm_new_token", "on_stream_event"):
                if (tell := getattr(manager, hook, None)) is not None:
                    setattr(self.manager, hook, self._noting(tell))

    def _noting(self, tell: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **kwargs: Any) -> Any:
            self.tokens += 1
            return tell(*args, **kwargs)

        return noted

    def broke_off(self, exc: Exception) -> None:
        """Raise RetryLater where a failed call's tokens are to be forgotten."""
        if self.tokens and faults.classify(exc, "resend") != "permanent":
            reason = f"the model's answer broke off: {faults.describe(exc)}"
            raise RetryLater(faults.retry_after(exc), reason, counted=True) from exc


class _AsyncSent(_Sent):
    def _noting(self, tell: Callable[..., Any]) -> Callable[..., Any]:
        async def noted(*args: Any, **kwargs: Any) -> Any:
            self.tokens += 1
            return await tell(*args, **kwargs)

        return noted


def _answer(model: BaseChatModel, found: ChatResult, sent: _Sent) -> Answer:
    """As it is recorded. Raises Transient for an answer that only stopped coming."""
    messages = [generation.message for generation in found.generations]
    root = type(model).__module__.partition(".")[0]
    if sent.tokens and root in _SAY_WHY:
        for message in messages:
            said = message.response_metadata
            if not any(said.get(name) for name in ("finish_reason", "status")):
                raise faults.Transient("the stream ended before the answer did")
    kept = {"content", "additional_kwargs", "response_metadata", "name", "id", "tool_calls"}
    kept |= {"invalid_tool_calls", "usage_metadata"}
    return Answer(messages=[plain(m.model_dump(include=kept)) for m in messages])


def _result(answer: Answer) -> ChatResult:
    messages = answer["messages"] or [{}]
    return ChatResult(
        generations=[ChatGeneration(message=AIMessage(**{"content": "", **m})) for m in messages]
    )


def _conversation(messages: list[BaseMessage]) -> list[Any]:
    """What a replay must have in common with the call."""
    return [
        [m.type, plain(m.content), plain(getattr(m, "tool_calls", [])), _call_id(m)]
        for m in messages
        if not isinstance(m, SystemMessage)
    ]


def _call_id(message: BaseMessage) -> str | None:
    found: str | None = getattr(message, "tool_call_id", None)
    return found
