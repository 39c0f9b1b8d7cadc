"""Whether an answer reached the question that it was given to.

A subgraph with ``checkpointer=False`` keeps no place to which an answer could lead: it starts
anew, and asks again under another id. Such a question would be asked for ever.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.runtime import RunControl
from langgraph.types import Command

from workers.claim import Claim
from workers.outcomes import Kind, Outcome
from workers.saver import FleetSaver

_RESUME = "__resume__"


class AnsweredSaver(FleetSaver):
    """Notes whether a node has taken an answer."""

    def __init__(self, claim: Claim, serde: SerializerProtocol, control: RunControl) -> None:
        super().__init__(claim, serde, control)
        # LangGraph's strict mode runs a graph with a shallow copy of the saver.
        self._taken: set[str] = set()

    @property
    def taken(self) -> bool:
        return bool(self._taken)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._taken.update(channel for channel, _ in writes if channel == _RESUME)
        super().put_writes(config, writes, task_id, task_path)

    # LangGraph looks at it in each run.
    put_writes.__signature__ = inspect.signature(put_writes)  # type: ignore[attr-defined]


def reached(step: Any, outcome: Outcome, saver: AnsweredSaver, attempt: int) -> Outcome:
    """The outcome of a run that was given an answer; dead when nothing has taken it.

    Only a first attempt tells: a later one may begin behind the question, of which the one
    before has written the answer.
    """
    if not isinstance(step, Command) or outcome.kind is not Kind.WAITING:
        return outcome
    if saver.taken or attempt > 1:
        return outcome
    resume: dict[str, Any] = step.resume or {}
    if resume.keys() & {question["question_id"] for question in outcome.questions}:
        return outcome
    return Outcome(
        Kind.DEAD,
        "the answer could not be given: its question came from a subgraph with "
        "checkpointer=False, which forgets where it asked; compile that subgraph without it",
    )
