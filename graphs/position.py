"""Where in the running graph a call stands: the one place that reads LangGraph's internals.

The root task's id is stable, because its checkpoint is committed with the first intent
made under it. Below the root, ids are not: a subgraph that starts anew (a node retry,
``checkpointer=False``) gets new task ids and a number in its namespace, yet takes the same
steps. So a place below the root is told by node name, step and path within its graph.

A node that is retried goes on numbering the ``@task`` functions it calls where the failed
attempt stopped. Its calls are numbered here from where the present attempt began, which
LangGraph has to be made to tell: see :func:`install`.
"""

import inspect
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
_stock_reset = _retry._reset_interrupt_counter


@dataclass(frozen=True, slots=True)
class Position:
    """The place of the running task.

    thread_id: LangGraph's. root: identity of the root graph's task. path: per level below
    it, (node, step) and for the last one its task path too. chain: the scratchpads from
    the root task's to the running one's; one object is one execution of a task, a retry
    makes a new one that shares its counters with the old one. attempts: which of its
    caller's attempts made the call, from the running task's caller outwards. restarted: a
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
    own, attempts = _within(config.get("metadata", {}).get("langgraph_path", ()), chain)
    return Position(
        thread_id=conf.get("thread_id"),
        root=root,
        path=_path([n.partition(":")[0] for n in nodes[1:]], chain, own),
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
            "@task functions may repeat their effects; put the policy on the task"
        )
        return
    _retry._reset_interrupt_counter = _reset


def patchable() -> bool:
    """Whether the installed LangGraph has the shape that the patch relies on."""
    return all(
        "config = _reset_interrupt_counter(config)" in inspect.getsource(run)
        for run in (_retry.run_with_retry, _retry.arun_with_retry)
    )


@dataclass(slots=True)
class _Calls:
    """A task's counter of calls, and the numbers at which its attempts began."""

    count: Callable[[], int]
    starts: list[int]

    def __call__(self) -> int:
        return self.count()


def _reset(config: Any) -> Any:
    """A task is about to be tried again: note how far its calls are numbered."""
    counter = getattr(config["configurable"].get(_SCRATCHPAD), "call_counter", None)
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


def _path(names: list[str], chain: tuple[Any, ...], own: Any) -> tuple[tuple[Any, ...], ...]:
    if not names:
        return ()
    steps = [pad.step for pad in chain[1:]]
    if len(steps) != len(names):
        # Not the LangGraph known: the names alone are a coarser place, never a wrong one,
        # since two tasks found at one place are refused.
        steps = [-1] * len(names)
    below = [*zip(names, steps, strict=True)]
    return (*below[:-1], (*below[-1], own))


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
