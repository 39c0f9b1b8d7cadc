"""Tools of tool-calling agents as effects: each tool call happens once.

    agent = create_agent(model, [effect_tool(send_mail), effect_tool(refund), search])

The tool call's id, which is in the thread's checkpoints with the message that made the
call, is the identity of the effect within its step. What a model gives are the effect's
arguments; what LangGraph injects (state, store, runtime, config) is no part of them.
"""

import copy
import functools
import inspect
import re
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForToolRun, CallbackManagerForToolRun
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import tool as make_tool
from pydantic import PrivateAttr

from graphs.effects import AsyncEffect, Effect, Retry, effect, lookup
from graphs.errors import EffectFailed

_call_id: ContextVar[str | None] = ContextVar("tool_call_id", default=None)


class EffectTool(StructuredTool):
    """A tool whose calls are effects."""

    _effects: list[Effect[Any] | AsyncEffect[Any]] = PrivateAttr(default_factory=list)

    def run(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        token = _call_id.set(tool_call_id)
        try:
            return super().run(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _call_id.reset(token)

    async def arun(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        token = _call_id.set(tool_call_id)
        try:
            return await super().arun(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _call_id.reset(token)

    def _run(
        self,
        *args: Any,
        config: RunnableConfig,
        run_manager: CallbackManagerForToolRun | None = None,
        **kwargs: Any,
    ) -> Any:
        try:
            return super()._run(*args, config=config, run_manager=run_manager, **kwargs)
        except EffectFailed as failed:
            raise self._told(failed) from failed

    async def _arun(
        self,
        *args: Any,
        config: RunnableConfig,
        run_manager: AsyncCallbackManagerForToolRun | None = None,
        **kwargs: Any,
    ) -> Any:
        try:
            return await super()._arun(*args, config=config, run_manager=run_manager, **kwargs)
        except EffectFailed as failed:
            raise self._told(failed) from failed

    def _told(self, failed: EffectFailed) -> Exception:
        """A refusal, as LangChain tells it to the model where the tool is to handle errors."""
        if not self.handle_tool_error:
            return failed
        return ToolException(failed.detail.removeprefix(f"{ToolException.__name__}: "))


def effect_tool(
    tool: BaseTool | Callable[..., Any],
    *,
    name: str | None = None,
    on_doubt: Literal["resend", "park"] | lookup | None = None,
    key_ttl: str | float | timedelta = "24h",
    retry: Retry | None = None,
    timeout: float = 20.0,
) -> BaseTool:
    """Make a tool, a function or an effect a tool whose calls are effects.

    A ToolException says that the call did not happen. on_doubt: as graphs.effects.effect has
    it; left out, it is "resend" for a function that takes ``request_id`` (and sends it), else
    "park": a person says whether the call happened. An effect keeps its own options. Raises
    TypeError for a tool that is not made of a function: call an effect in its ``_run`` then.
    """
    given = tool if isinstance(tool, BaseTool) else _shown(tool)
    if not isinstance(given, StructuredTool):
        raise TypeError(
            f"effect_tool takes tools that are made of a function; {given.name} is of type "
            f"{type(given).__name__}: call an effect where it calls the outside"
        )
    made = EffectTool(**{field: getattr(given, field) for field in StructuredTool.model_fields})
    effect_name = name or re.sub(r"[^A-Za-z0-9_.-]", "_", given.name)[:100]
    for kind in ("func", "coroutine"):
        function = getattr(given, kind)
        if function is None:
            continue
        declared = function
        if not isinstance(function, Effect | AsyncEffect):
            doubt = on_doubt or ("resend" if _takes_id(function) else "park")
            options: Any = {"key_ttl": key_ttl, "retry": retry, "timeout": timeout}
            declare = effect(effect_name, on_doubt=doubt, **options)
            declared = declare(_stand_in(given, kind == "coroutine"))
        made._effects.append(declared)
        setattr(made, kind, _calling(declared, function, frozenset(given.args)))
    return made


def _calling(declared: Any, function: Any, named: frozenset[str]) -> Callable[..., Any]:
    """What the tool calls: its function, as one call of the effect."""
    takes_id = _takes_id(function)

    @functools.wraps(function)
    def call(**kwargs: Any) -> Any:
        call_id = _call_id.get()
        bound = declared.at(call_id) if call_id else declared
        if function is declared:
            return bound(**kwargs)
        injected = {k: v for k, v in kwargs.items() if k not in named}

        def once(*, request_id: str, **given: Any) -> Any:
            return function(**given, **injected, **({"request_id": request_id} if takes_id else {}))

        bound = copy.copy(bound)
        bound._function = once
        return bound(**{k: v for k, v in kwargs.items() if k in named})

    return call


def _shown(function: Any) -> BaseTool:
    """A tool of a function or an effect; a request id is not shown to the model."""
    is_async = isinstance(function, AsyncEffect) or inspect.iscoroutinefunction(function)
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "request_id"]

    def shown(**kwargs: Any) -> Any:
        raise NotImplementedError

    shown.__name__, shown.__doc__ = function.__name__, function.__doc__
    shown.__module__ = function.__module__
    shown.__annotations__ = {k: v for k, v in function.__annotations__.items() if k != "request_id"}
    shown.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    made = make_tool(shown)
    assert isinstance(made, StructuredTool)
    made.func, made.coroutine = (None, function) if is_async else (function, None)
    return made


def _stand_in(given: StructuredTool, is_async: bool) -> Callable[..., Any]:
    """What an effect is declared with: the model's arguments and the request id."""

    def tool(*, request_id: str) -> Any:
        raise NotImplementedError

    async def atool(*, request_id: str) -> Any:
        raise NotImplementedError

    made: Any = atool if is_async else tool
    keyword = inspect.Parameter.KEYWORD_ONLY
    made.__signature__ = inspect.Signature(
        [inspect.Parameter(n, keyword, default=None) for n in [*given.args, "request_id"]]
    )
    made.__doc__ = given.description
    function: Callable[..., Any] = made
    return function


def _takes_id(function: Callable[..., Any]) -> bool:
    return "request_id" in inspect.signature(function).parameters
