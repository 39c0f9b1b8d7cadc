"""LangGraph's saves, run inline: the one place where LangGraph is patched.

``put`` and ``put_writes`` of our saver only fill a buffer, so a thread pool for them is
pure cost (the largest single one of a turn); inline they also precede the node that
depends on them with ``durability="async"``. Nodes that run side by side still go to the
pool, which is made for the first of them: most steps are of one node. A contract test pins
what is patched; where LangGraph has changed, :func:`install` warns and stock threads with
``durability="sync"`` are used.
"""

import inspect
import logging
import threading
from concurrent.futures import Executor, Future
from contextlib import ExitStack
from typing import Any, Literal

from langchain_core.runnables.config import get_executor_for_config
from langgraph.pregel import _executor, _loop

from workers.saver import FleetSaver

log = logging.getLogger("fleet.inline")

_stock_init = _executor.BackgroundExecutor.__init__
_stock_submit = _executor.BackgroundExecutor.submit

#: What a save gives: LangGraph looks at no more than that it is over.
_SAVED: Future[Any] = Future()
_SAVED.set_result(None)


def install() -> Literal["async", "sync"]:
    """Patch once per process; give the durability that keeps saves before their nodes."""
    if _executor.BackgroundExecutor.submit is _submit:
        return "async"
    if not patchable():
        log.warning(
            "this LangGraph's BackgroundExecutor is not the one known: "
            "saves use its threads, with durability=sync"
        )
        return "sync"
    _executor.BackgroundExecutor.__init__ = _init  # type: ignore[method-assign]
    _executor.BackgroundExecutor.submit = _submit  # type: ignore[method-assign]
    return "async"


def patchable() -> bool:
    """Whether the installed LangGraph has the shape that the patch relies on."""
    return (
        list(inspect.signature(_stock_submit).parameters)[:3] == ["self", "fn", "args"]
        and "self.tasks[task] = (__cancel_on_exit__, __reraise_on_exit__)"
        in inspect.getsource(_stock_submit)
        and _lines(inspect.getsource(_stock_init)) == _INIT
        and "self.submit(" in inspect.getsource(_loop.PregelLoop._put_checkpoint)
        and hasattr(_loop.SyncPregelLoop, "_checkpointer_put_after_previous")
    )


def _lines(source: str) -> list[str]:
    """Of a function's body, without comments."""
    lines = [line.strip() for line in source.splitlines()[1:]]
    return [line for line in lines if line and not line.startswith("#")]


#: What BackgroundExecutor's constructor does.
_INIT = [
    "self.stack = ExitStack()",
    "self.executor = self.stack.enter_context(get_executor_for_config(config))",
    "self.tasks: dict[concurrent.futures.Future, tuple[bool, bool]] = {}",
]


class _LatePool:
    """LangGraph's thread pool, made when it is first used and ended with `stack`."""

    def __init__(self, config: Any, stack: ExitStack) -> None:
        self._config = config
        self._stack = stack
        self._lock = threading.Lock()
        self._pool: Executor | None = None

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        with self._lock:
            if self._pool is None:
                self._pool = self._stack.enter_context(get_executor_for_config(self._config))
        return self._pool.submit(fn, *args, **kwargs)


def _init(self: _executor.BackgroundExecutor, config: Any) -> None:
    self.stack = ExitStack()
    self.executor = _LatePool(config, self.stack)  # type: ignore[assignment]
    self.tasks = {}


def _is_save(fn: Any) -> bool:
    owner = getattr(fn, "__self__", None)
    if fn.__name__ == "put_writes":
        return isinstance(owner, FleetSaver)
    return fn.__name__ == "_checkpointer_put_after_previous" and isinstance(
        getattr(owner, "checkpointer", None), FleetSaver
    )


def _submit(self: _executor.BackgroundExecutor, fn: Any, *args: Any, **kwargs: Any) -> Future[Any]:
    if not hasattr(fn, "__name__") or not _is_save(fn):
        return _stock_submit(self, fn, *args, **kwargs)
    try:
        fn(*args)
    except BaseException as exc:
        # As LangGraph does with a failed save: the run goes on and the executor
        # raises at its exit. Nothing is sent meanwhile: the claim is poisoned.
        failed: Future[Any] = Future()
        failed.set_exception(exc)
        self.tasks[failed] = (False, True)
        return failed
    return _SAVED
