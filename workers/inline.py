"""LangGraph's saves, run inline: the one place where LangGraph is patched.

``put`` and ``put_writes`` of our saver only fill a buffer, so a thread pool for them is
pure cost (the largest single one of a turn); inline they also precede the node that
depends on them with ``durability="async"``. Nodes still go to the pool. A contract test
pins what is patched; where LangGraph has changed, :func:`install` warns and stock threads
with ``durability="sync"`` are used.
"""

import inspect
import logging
from concurrent.futures import Future
from typing import Any, Literal

from langgraph.pregel import _executor, _loop

from workers.saver import FleetSaver

log = logging.getLogger("fleet.inline")

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
    _executor.BackgroundExecutor.submit = _submit  # type: ignore[method-assign]
    return "async"


def patchable() -> bool:
    """Whether the installed LangGraph has the shape that the patch relies on."""
    return (
        list(inspect.signature(_stock_submit).parameters)[:3] == ["self", "fn", "args"]
        and "self.tasks[task] = (__cancel_on_exit__, __reraise_on_exit__)"
        in inspect.getsource(_stock_submit)
        and "self.submit(" in inspect.getsource(_loop.PregelLoop._put_checkpoint)
        and hasattr(_loop.SyncPregelLoop, "_checkpointer_put_after_previous")
    )


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
