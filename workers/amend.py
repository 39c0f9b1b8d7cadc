"""Amend: a person has done a node's work by hand, and the thread's state is to say so.

Written as the node itself would have written it, under the thread's claim. The new
checkpoint carries the run of the message that the amendment interrupts, so that this one
goes on from there: a dead message when it is retried, an incompatible one at once. Where it
interrupts none, the amendment's own turn goes on with the graph.

Where other tasks stand beside the amended one, a new checkpoint would drop them: then the
values become the task's own result in the step under way.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from graphs.amendment import SeenEffect, Standing, refused, unfit
from graphs.questions import question_of
from graphs.registry import RegisteredGraph
from infra.errors import FleetError
from infra.sql import query
from producers.messages import run_id
from workers import deadlines
from workers.outcomes import Kind, Outcome
from workers.saver import FleetSaver

if TYPE_CHECKING:
    from workers.turn import Turn

#: The mark of an amendment's checkpoint: the message that it came with.
MARK = "fleet_amended"


@dataclass(frozen=True, slots=True)
class _Met:
    """What the amendment met in the mailbox; the first three of the interrupted message."""

    seq: int | None
    message_id: str | None
    status: str | None
    asked: bool
    cancelled: bool
    effects: list[list[str]]


def run(turn: "Turn") -> Outcome | None:
    """Write the amendment; its outcome, or None when this turn is to go on with the graph."""
    c = turn.claimed
    try:
        graph = turn.slot.graph(c.graph, turn.setup.config)
    except FleetError:
        return None
    met = _met(turn)
    if not _is_written(turn):
        standing = _standing(turn, graph, met)
        as_node, values = c.payload["as_node"], c.payload["values"]
        problem = unfit(graph, as_node, values) or refused(as_node, standing)
        problem = problem or _write(turn, graph, met, standing)
        if problem:
            return Outcome(Kind.REFUSED, f"refused: {problem}", thread=_left_as(turn, graph, met))
    if met.seq is None:
        return turn._judge(graph) if graph.has_breakpoints else None
    if met.status == "pending":
        with turn.claim.lock:
            args = {"thread_id": c.thread_id, "seq": met.seq}
            turn.claim.conn.execute(query("amend_lets_go"), args)
    return Outcome(
        Kind.DONE,
        questions=deadlines.rows(map(question_of, turn._interrupts()), c.thread_id),
        thread={"dead": "failed", "in_doubt": "in_doubt"}.get(str(met.status), "idle"),
    )


def _is_written(turn: "Turn") -> bool:
    """Whether an earlier attempt has committed it already."""
    head = turn.saver.root
    if head is None:
        return False
    found = head.metadata
    return found.get(MARK) == turn.claimed.message_id or found.get("run_id") == turn.run_id


def _met(turn: "Turn") -> _Met:
    c = turn.claimed
    head = turn.saver.root
    args = {
        "thread_id": c.thread_id,
        "seq": c.seq,
        "generation": c.generation,
        "checkpoint_id": head.checkpoint_id if head else "",
    }
    with turn.claim.lock:
        row = turn.claim.conn.execute(query("amend_standing"), args).fetchone()
    assert row is not None
    return _Met(*row)


def _standing(turn: "Turn", graph: RegisteredGraph, met: _Met) -> Standing | None:
    if turn.saver.root is None:
        return None
    return Standing(
        turn.claimed.thread_id,
        turn.claimed.generation,
        tuple((task.name, task.id) for task in turn._state(graph).tasks),
        tuple(SeenEffect(*effect) for effect in met.effects),
    )


def _write(
    turn: "Turn", graph: RegisteredGraph, met: _Met, standing: Standing | None
) -> str | None:
    """Buffer the amendment; why not, when the graph does not take it."""
    c = turn.claimed
    beside = standing is not None and len(standing.tasks) > 1
    saver = _Beside(turn) if beside else turn.saver
    config = turn.setup.driven_by(saver)
    config["configurable"] |= {
        "run_id": _run(turn, met),
        MARK: c.message_id,
        f"{MARK}_as": c.payload["as_node"],
        f"{MARK}_by": c.payload["by"] or "",
    }
    values, as_node = c.payload["values"], c.payload["as_node"]
    # Held throughout, so that half an amendment is never flushed.
    with turn.claim.lock:
        turn.claim.flush()
        try:
            if graph.is_async:
                turn.slot.run_async(graph.graph.aupdate_state(config, values, as_node))
            else:
                graph.graph.update_state(config, values, as_node)
        except Exception as exc:
            turn.claim.buffer.clear()
            return f"graph {c.graph} does not take the values: {type(exc).__name__}: {exc}"
    return None


def _run(turn: "Turn", met: _Met) -> str:
    """The run that goes on from the amendment: the interrupted message's, if it had begun."""
    head = turn.saver.root
    if met.message_id is not None and head is not None:
        interrupted = run_id(met.message_id, turn.claimed.checkpoint_thread)
        if head.metadata.get("run_id") == interrupted:
            return interrupted
    return turn.run_id


def _left_as(turn: "Turn", graph: RegisteredGraph, met: _Met) -> str:
    """The status of a thread to which nothing was done."""
    if met.status is not None:
        return {"dead": "failed", "in_doubt": "in_doubt"}.get(met.status, "incompatible")
    if met.asked:
        return "waiting"
    if met.cancelled:
        return "cancelled"
    unfinished = turn.saver.root is not None and turn._unfinished(turn._state(graph))
    return "idle" if unfinished else "done"


class _Beside(FleetSaver):
    """Takes the amended task's writes, and not the checkpoint that would follow them."""

    def __init__(self, turn: "Turn") -> None:
        super().__init__(turn.claim, turn.slot.serde, turn.control)
        self.heads = turn.saver.heads
        self.hearing = turn.saver.hearing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return config
