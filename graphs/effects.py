"""Effects: external calls that happen once, however often their node runs.

    @effect("payments.refund", on_doubt="resend", key_ttl="24h")
    def refund(order_id: str, amount: Decimal, *, request_id: str) -> Receipt: ...

In a node, ``refund(order_id=..., amount=...)``. The fleet makes the request id; one given
by a caller (a model, say) is ignored. The function makes ONE call to the outside and
raises what its client raises; graphs.faults says what each exception means.

``on_doubt``, for a call that began and has no result (its process died, say):

``"resend"``      the outside honours request ids, for ``key_ttl``; after that, as park
``lookup=fn``     ``fn(request_id=...)`` asks the outside; it gets those arguments of the call
                  that it names too, and returns a value or ``Found(value)``, None: not there
``"park"``        a person decides

``timeout`` bounds one call. It ends an async function; a thread can't be ended, so a sync
function must keep to it by itself (``current_call().timeout``).
"""

import copy
import inspect
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, Self, TypeVar, overload

from graphs.attempts import Found, Spec
from graphs.control import Control
from graphs.errors import EffectOutsideTurn
from graphs.faults import Permanent, Transient, classify
from graphs.ledger import current_turn
from graphs.results import Codec
from graphs.retries import Retry
from graphs.running import CurrentCall, Running, current_call
from graphs.values import args_hash

__all__ = [
    "AsyncEffect",
    "CurrentCall",
    "Effect",
    "Found",
    "Permanent",
    "Retry",
    "Transient",
    "classify",
    "current_call",
    "effect",
    "lookup",
    "seconds",
]

R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\Z")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_KEY = 500


@dataclass(frozen=True, slots=True)
class lookup:
    """``on_doubt=lookup(fn)``: ask the outside what became of a request id."""

    function: Callable[..., Any]


def seconds(duration: str | float | timedelta) -> float:
    """``"24h"``, ``"15m"``, ``"30s"``, ``"7d"``, ``"500ms"``, a timedelta or seconds."""
    if isinstance(duration, timedelta):
        value = duration.total_seconds()
    elif isinstance(duration, str):
        match = _DURATION.match(duration.strip())
        if match is None:
            raise ValueError(f"{duration!r} is no duration: write 30s, 15m, 24h or 7d")
        value = float(match[1]) * _UNITS[match[2]]
    else:
        value = float(duration)
    if not 0 < value < float("inf"):
        raise ValueError(f"{duration!r} is no duration: it must be more than nothing")
    return value


class _Bound:
    """An effect, with a label or a key where given. Copies share everything else."""

    def __init__(self, spec: Spec, function: Callable[..., Any]) -> None:
        self._spec = spec
        self._function = function
        self._label: str | None = None
        self._key: str | None = None
        signature = inspect.signature(function)
        shown = [p for p in signature.parameters.values() if p.name != "request_id"]
        # What a caller may give, which is also what a model is shown of a tool.
        self.__signature__ = signature.replace(parameters=shown)
        self.__name__ = getattr(function, "__name__", spec.name)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        hints = dict(getattr(function, "__annotations__", {}))
        hints.pop("request_id", None)
        self.__annotations__ = hints

    @property
    def name(self) -> str:
        return self._spec.name

    def at(self, label: str) -> Self:
        """Tell calls of one node apart that may overlap, or that a model orders."""
        if not isinstance(label, str) or not label:
            raise ValueError(f"effect {self.name}: .at() takes a text that is not empty")
        bound = copy.copy(self)
        bound._label = label
        return bound

    def keyed(self, key: str) -> Self:
        """Give the call a business identity: once per tenant, whichever thread calls."""
        if not isinstance(key, str) or not key.strip() or "\x00" in key or len(key) > _LONGEST_KEY:
            raise ValueError(
                f"effect {self.name}: .keyed() takes a text of 1 to {_LONGEST_KEY} characters"
            )
        bound = copy.copy(self)
        bound._key = key
        return bound

    def _enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Running:
        ledger = current_turn.get()
        if ledger is None:
            raise EffectOutsideTurn(
                f"effect {self.name} was called outside of a turn, so nothing would record it: "
                "call it in a node of a graph that a worker runs"
            )
        kwargs.pop("request_id", None)
        bound = self.__signature__.bind(*args, **kwargs)
        try:
            call = ledger.enter(self.name, self._label, self._key, args_hash(bound.arguments))
        except Control as control:
            ledger.stop(control)
            raise
        return Running(self._spec, self._function, bound, ledger, call)


class Effect(_Bound, Generic[R]):
    """A sync effect."""

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        with self._enter(args, kwargs) as run:
            result: R = run.drive()
            return result


class AsyncEffect(_Bound, Generic[R]):
    """An async effect."""

    async def __call__(self, *args: Any, **kwargs: Any) -> R:
        with self._enter(args, kwargs) as run:
            result: R = await run.adrive()
            return result


class _Decorator:
    """``@effect(...)``: sync functions give an Effect, async ones an AsyncEffect."""

    def __init__(self, make: Callable[[Callable[..., Any]], Spec]) -> None:
        self._make = make

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[..., Coroutine[Any, Any, R]]
    ) -> AsyncEffect[R]: ...
    @overload
    def __call__(self, function: Callable[..., R]) -> Effect[R]: ...
    def __call__(self, function: Callable[..., Any]) -> Any:
        spec = self._make(function)
        is_async = inspect.iscoroutinefunction(function)
        if spec.lookup is not None and inspect.iscoroutinefunction(spec.lookup) and not is_async:
            raise TypeError(f"effect {spec.name}: a sync effect can't have an async lookup")
        parameter = inspect.signature(function).parameters.get("request_id")
        if parameter is None or parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            raise TypeError(
                f"effect {spec.name}: {getattr(function, '__name__', function)} must take "
                "request_id as a keyword-only parameter, and send it"
            )
        return AsyncEffect(spec, function) if is_async else Effect(spec, function)


def effect(
    name: str,
    *,
    on_doubt: Literal["resend", "park"] | lookup = "resend",
    lookup: Callable[..., Any | Awaitable[Any]] | None = None,
    key_ttl: str | float | timedelta = "24h",
    retry: Retry | None = None,
    timeout: float = 20.0,
    at_once: bool = False,
) -> _Decorator:
    """Declare an effect; see the module's docstring. Raises ValueError, TypeError.

    at_once: commit a result as soon as it is there, for calls that cost more than a commit;
    a result of "resend" goes with the next commit otherwise, and its call is made again after
    a crash before that.
    """
    if not _NAME.match(name):
        raise ValueError(f"{name!r} can't name an effect: letters, digits, '.', '_' and '-'")
    ask = lookup if isinstance(on_doubt, str) else on_doubt.function
    policy = "lookup" if ask is not None and on_doubt != "park" else on_doubt
    if policy not in ("resend", "park", "lookup") or (policy == "park" and ask is not None):
        raise ValueError(f"effect {name}: on_doubt is 'resend', 'park' or lookup(fn)")
    limits = (seconds(key_ttl), retry or Retry(), seconds(timeout))
    return _Decorator(
        lambda function: Spec(name, str(policy), *limits, ask, Codec(function), at_once)
    )
