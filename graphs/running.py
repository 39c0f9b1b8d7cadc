"""Runs one call of an effect: does what graphs.attempts asks for, in sync or in async code."""

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Self

from graphs.attempts import Act, Attempts, Do, Spec
from graphs.control import Control
from graphs.errors import EffectOutsideTurn
from graphs.ledger import Call, Ledger


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """What the running effect function may know of its call. ``timeout`` in seconds."""

    name: str
    request_id: str
    attempt: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Outside:
    """What a stand-in is asked for: one call of an effect's function, or of its lookup.

    ``real`` makes that call; what it gives is awaitable where the effect is async.
    """

    spec: Spec
    call: Call
    do: Do
    arguments: dict[str, Any]
    function: Callable[..., Any]
    real: Callable[[], Any]


#: In a chaos run, what is asked in place of the outside (producers.chaos).
stand_in: Callable[[Outside], Any] | None = None

_current: ContextVar[CurrentCall | None] = ContextVar("current_call", default=None)


def current_call() -> CurrentCall:
    """The call that the running effect function serves."""
    call = _current.get()
    if call is None:
        raise EffectOutsideTurn("current_call() has no meaning outside of an effect's function")
    return call


class Running:
    """One call from :meth:`Ledger.enter` to its end, whichever way it ends."""

    def __init__(
        self,
        spec: Spec,
        function: Callable[..., Any],
        bound: inspect.BoundArguments,
        ledger: Ledger,
        call: Call,
    ) -> None:
        self._spec = spec
        self._function = function
        self._bound = bound
        self._ledger = ledger
        self._call = call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Control):
            self._ledger.stop(error)
        self._ledger.leave(self._call)

    def drive(self) -> Any:
        """To its result, in sync code."""
        flow = Attempts(self._spec, self._ledger, self._call).run()
        try:
            do = next(flow)
            while True:
                try:
                    done = self._do(do)
                except BaseException as exc:
                    do = flow.throw(exc)
                else:
                    do = flow.send(done)
        except StopIteration as end:
            return end.value

    async def adrive(self) -> Any:
        """To its result, in async code."""
        flow = Attempts(self._spec, self._ledger, self._call).run()
        try:
            do = next(flow)
            while True:
                try:
                    done = await self._ado(do)
                except BaseException as exc:
                    do = flow.throw(exc)
                else:
                    do = flow.send(done)
        except StopIteration as end:
            return end.value

    def _do(self, do: Do) -> Any:
        match do.act:
            case Act.YIELD:
                return None
            case Act.PAUSE:
                return self._ledger.pause(do.seconds)
        with self._serving(do):
            return self._target(do)()

    async def _ado(self, do: Do) -> Any:
        match do.act:
            case Act.YIELD:
                return await asyncio.sleep(0)
            case Act.PAUSE:
                return await self._ledger.apause(do.seconds)
        target = self._target(do)
        with self._serving(do):
            async with asyncio.timeout(self._spec.timeout):
                if do.act is Act.LOOK_UP and not inspect.iscoroutinefunction(self._spec.lookup):
                    return await asyncio.to_thread(target)
                done = target()
                # A stand-in has its answer at once.
                return await done if inspect.isawaitable(done) else done

    @contextlib.contextmanager
    def _serving(self, do: Do) -> Iterator[None]:
        call = self._call
        token = _current.set(
            CurrentCall(call.name, call.request_id, do.attempt, self._spec.timeout)
        )
        try:
            yield
        finally:
            _current.reset(token)

    def _target(self, do: Do) -> Callable[[], Any]:
        real, asked = self._real(do), stand_in
        if asked is None:
            return real
        given = dict(self._bound.arguments)
        outside = Outside(self._spec, self._call, do, given, self._function, real)
        return lambda: asked(outside)

    def _real(self, do: Do) -> Callable[[], Any]:
        request_id = self._call.request_id
        if do.act is Act.LOOK_UP:
            ask = self._spec.lookup
            assert ask is not None
            given = _accepted(ask, self._bound.arguments)
            return lambda: ask(request_id=request_id, **given)
        kwargs = {**self._bound.kwargs, "request_id": request_id}
        return lambda: self._function(*self._bound.args, **kwargs)


def _accepted(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Those arguments of the call that the lookup names, or all if it takes any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return given
    return {name: value for name, value in given.items() if name in parameters}
