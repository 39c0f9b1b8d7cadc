"""Where in the running graph a call stands: the one place that reads LangGraph's internals.

The root task's id is stable, because its checkpoint is committed with the first intent
made under it. Below the root, ids are not: a subgraph that starts anew (a node retry,
``checkpointer=False``) gets new task ids and a number in its namespace, yet takes the same
steps. So a place below the root is told by node name, step and path within its graph. The
path tells apart the tasks that one step starts several times (a ``@task`` that is called, a
node that is sent to); a task's own is in its config, of those around it LangGraph has to be
made to tell: see :func:`install`.

A node that is retried goes on numbering the ``@task`` functions it calls where the failed
attempt stopped. Its calls are numbered here from where the present attempt began, which is
noted likewise.
"""

import inspect
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

from langgraph.config import get_config
from langgraph.pregel import _retry

from graphs.errors import EffectOutsideTurn

log = logging.getLogger("fleet.position")

_SCRATCHPAD = "__pregel_scratchpad"
_PUSH = "__pregel_push"
#: What runs beside the task: a saver of ours wants to know of some (workers.saver).
_SAVER, _TASK = "__pregel_checkpointer", "__pregel_task_id"
_stock_reset = _retry._reset_interrupt_counter
_stock_ensure = _retry._ensure_execution_info


@dataclass(frozen=True, slots=True)
class Position:
    """The place of the running task.

    thread_id: LangGraph's. root: identity of the root graph's task. path: per level below
    it, (node, step), with the task's path for the last one and for those that its step
    starts several times. chain: the scratchpads from
    the root task's to the running one's; one object is one execution of a task, a retry
    makes a new one that shares its counters with the old one. attempts: which of its
    caller's attempts made the call, from the running task's caller outwards, level by level
    from the root's. restarted: a
    subgraph that keeps its own history was called once more by the same task, so that its
    steps no longer say where it is.
    """

    thread_id: str | None
    root: str
    path: tuple[tuple[Any, ...], ...]
    chain: tuple[Any, ...]
    attempts: tuple[int, ...]
    restarted: bool

    @property
    def execution(self) -> Any:
        """The object that stands for this execution of the task."""
        return self.chain[-1]


def here() -> Position:
    """The position of the caller. Raises EffectOutsideTurn outside of a node."""
    try:
        config = get_config()
        conf = config["configurable"]
        namespace = conf["checkpoint_ns"]
        scratchpad = conf[_SCRATCHPAD]
    except (RuntimeError, KeyError):
        raise EffectOutsideTurn(
            "an effect was called outside of a graph's node: call it in a node, and carry the "
            "context into threads of your own with contextvars.copy_context().run"
        ) from None
    segments = namespace.split("|")
    nodes = [s for s in segments if not s.isdigit()]
    first, _, task_id = nodes[0].partition(":")
    root = nodes[0] if task_id else f"{first}@{conf['checkpoint_map']['']}"
    chain = _chain(scratchpad)
    own = config.get("metadata", {}).get("langgraph_path", ())
    path, attempts = _path([n.partition(":")[0] for n in nodes[1:]], chain, own)
    return Position(
        thread_id=conf.get("thread_id"),
        root=root,
        path=path,
        chain=chain,
        attempts=attempts,
        restarted=any(
            number.isdigit() and ":" not in before for before, number in pairwise(segments)
        ),
    )


def nodes(position: Position) -> str:
    """The nodes from the root's down, each with its superstep: the same at each attempt."""
    names = [
        position.root.partition(":")[0].partition("@")[0],
        *(name for name, *_ in position.path),
    ]
    steps = [getattr(pad, "step", -1) for pad in position.chain]
    return "|".join(f"{n}={s}" for n, s in zip_longest(names, steps[: len(names)], fillvalue=-1))


def same_task(one: Any, other: Any) -> bool:
    """Whether two scratchpads belong to one task (its first execution and a retry, say)."""
    return one is other or one.subgraph_counter is other.subgraph_counter


def install() -> None:
    """Patch once per process; warn where LangGraph is not the one known."""
    if _retry._reset_interrupt_counter is _reset:
        return
    if not patchable():
        log.warning(
            "this LangGraph's retries are not those known: a node with a retry policy that calls "
            "@task functions may repeat their effects; put the policy on the task. Subgraphs in "
            "several tasks of one step are refused; label their effects"
        )
        return
    _retry._reset_interrupt_counter = _reset
    _retry._ensure_execution_info = _ensure


def patchable() -> bool:
    """Whether the installed LangGraph has the shape that the patch relies on."""
    return all(
        line in inspect.getsource(run)
        for run in (_retry.run_with_retry, _retry.arun_with_retry)
        for line in (
            "config = _reset_interrupt_counter(config)",
            "runtime = _ensure_execution_info(runtime, config, task)",
        )
    )


@dataclass(slots=True)
class _Calls:
    """A task's counter of calls, the numbers at which its attempts began, and its own path."""

    count: Callable[[], int]
    starts: list[int]
    path: tuple[Any, ...] = ()

    def __call__(self) -> int:
        return self.count()


def _ensure(runtime: Any, config: Any, task: Any) -> Any:
    """A task is about to run: note its path, where its step may start it several times."""
    conf = config["configurable"]
    counter = getattr(conf.get(_SCRATCHPAD), "call_counter", None)
    several = bool(task.path) and task.path[0] == _PUSH
    if counter is not None and several and getattr(counter, "_counter", counter) is None:
        counter._counter = _Calls(itertools.count(0).__next__, [0], task.path)
    if several and (begins := getattr(conf.get(_SAVER), "begins", None)) is not None:
        begins(task)
    return _stock_ensure(runtime, config, task)


def _reset(config: Any) -> Any:
    """A task is about to be tried again: note how far its calls are numbered."""
    conf = config["configurable"]
    if (tried := getattr(conf.get(_SAVER), "tried_again", None)) is not None:
        tried(conf.get(_TASK))
    counter = getattr(conf.get(_SCRATCHPAD), "call_counter", None)
    calls = getattr(counter, "_counter", None)
    # None: it has called nothing yet.
    if counter is not None and calls is not None:
        if not isinstance(calls, _Calls):
            calls = counter._counter = _Calls(calls, [0])
        # The number is used up, and so is the first of nobody's calls.
        calls.starts.append(calls() + 1)
    return _stock_reset(config)


def _within(path: Any, chain: tuple[Any, ...]) -> tuple[Any, tuple[int, ...]]:
    """A task's path with each call numbered within its caller's attempt, and the attempts."""
    if len(chain) < 2 or len(path) != 4 or path[0] != _PUSH or path[3] is not True:
        return path, ()
    outer, attempts = _within(path[1], chain[:-1])
    calls = getattr(chain[-2].call_counter, "_counter", None)
    starts = calls.starts if isinstance(calls, _Calls) else [0]
    attempt = max(n for n, start in enumerate(starts) if start <= path[2])
    return (path[0], outer, path[2] - starts[attempt], True), (attempt, *attempts)


def _path(
    names: list[str], chain: tuple[Any, ...], own: Any
) -> tuple[tuple[tuple[Any, ...], ...], tuple[int, ...]]:
    """(the places below the root, the attempts that made the calls among them)."""
    if len(chain) != len(names) + 1:
        # Not the LangGraph known: the names alone are a coarser place, never a wrong one,
        # since two tasks found at one place are refused.
        own, attempts = _within(own, chain)
        below = [(name, -1) for name in names]
        return (*below[:-1], (*below[-1], own)) if below else (), attempts
    found: list[tuple[Any, ...]] = []
    attempts = ()
    for level, name in enumerate(names, 1):
        last = level == len(names)
        path, made_by = _within(own if last else _noted(chain[level]), chain[: level + 1])
        found.append((name, chain[level].step, *((path,) if last or path else ())))
        attempts += made_by
    return tuple(found), attempts


def _noted(scratchpad: Any) -> tuple[Any, ...]:
    """The path of a task that its step may start several times; () for any other."""
    calls = getattr(scratchpad.call_counter, "_counter", None)
    return calls.path if isinstance(calls, _Calls) else ()


def _chain(scratchpad: Any) -> tuple[Any, ...]:
    chain = [scratchpad]
    while (parent := _parent(chain[-1])) is not None:
        chain.append(parent)
    return tuple(reversed(chain))


def _parent(scratchpad: Any) -> Any:
    """The calling task's scratchpad, which LangGraph keeps in a closure only."""
    look = getattr(scratchpad, "get_null_resume", None)
    code, cells = getattr(look, "__code__", None), getattr(look, "__closure__", None)
    if code is None or not cells or "parent_scratchpad" not in code.co_freevars:
        return None
    return cells[code.co_freevars.index("parent_scratchpad")].cell_contents


install()
