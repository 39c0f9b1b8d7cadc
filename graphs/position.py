"""Where in the running graph a call stands: the one place that reads LangGraph's internals.

The root task's id is stable, because its checkpoint is committed with the first intent
made under it. Below the root, ids are not: a subgraph that starts anew (a node retry,
``checkpointer=False``) gets new task ids and a number in its namespace, yet takes the same
steps. So a place below the root is told by node name, step and path within its graph.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from langgraph.config import get_config

from graphs.errors import EffectOutsideTurn

_SCRATCHPAD = "__pregel_scratchpad"


@dataclass(frozen=True, slots=True)
class Position:
    """The place of the running task.

    thread_id: LangGraph's. root: identity of the root graph's task. path: per level below
    it, (node, step) and for the last one its task path too. chain: the scratchpads from
    the root task's to the running one's; one object is one execution of a task, a retry
    makes a new one that shares its counters with the old one. restarted: a subgraph that
    keeps its own history was called once more by the same task, so that its steps no
    longer say where it is.
    """

    thread_id: str | None
    root: str
    path: tuple[tuple[Any, ...], ...]
    chain: tuple[Any, ...]
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
    return Position(
        thread_id=conf.get("thread_id"),
        root=root,
        path=_path([n.partition(":")[0] for n in nodes[1:]], chain, config),
        chain=chain,
        restarted=any(
            number.isdigit() and ":" not in before for before, number in pairwise(segments)
        ),
    )


def same_task(one: Any, other: Any) -> bool:
    """Whether two scratchpads belong to one task (its first execution and a retry, say)."""
    return one is other or one.subgraph_counter is other.subgraph_counter


def _path(names: list[str], chain: tuple[Any, ...], config: Any) -> tuple[tuple[Any, ...], ...]:
    if not names:
        return ()
    steps = [pad.step for pad in chain[1:]]
    if len(steps) != len(names):
        # Not the LangGraph known: the names alone are a coarser place, never a wrong one,
        # since two tasks found at one place are refused.
        steps = [-1] * len(names)
    below = [*zip(names, steps, strict=True)]
    task_path = config.get("metadata", {}).get("langgraph_path", ())
    return (*below[:-1], (*below[-1], task_path))


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
