"""Where a turn stands, superstep by superstep: what failpoints can tell apart."""

from collections.abc import Callable, Mapping

from langgraph.runtime import RunControl

from infra.failpoints import failpoint
from workers.claimed import Claimed
from workers.head import Head


class Supersteps(RunControl):
    """LangGraph asks before each superstep whether to stop; that is where a failpoint is."""

    __slots__ = ("place",)
    place: Callable[[], str]

    @property
    def drain_requested(self) -> bool:
        failpoint("turn.superstep", self.place)
        return super().drain_requested


def place(claimed: Claimed, heads: Mapping[str, Head | None]) -> str:
    """The message, and the step of each graph and subgraph: the same at each attempt."""
    steps = sorted((_nodes(ns), h.metadata.get("step")) for ns, h in heads.items() if h)
    return f"{claimed.thread_id}/{claimed.seq}/" + ",".join(f"{n}={s}" for n, s in steps)


def _nodes(namespace: str) -> str:
    """A checkpoint namespace without the tasks' ids, which are new at each attempt."""
    return "|".join(part.partition(":")[0] for part in namespace.split("|"))
