"""What `fleet chaos` adds to its workers: a record of each attempt, and a stand-in outside.

Nothing here runs unless FLEET_CHAOS_TRIAL names a trial (producers.chaos.trial_file).
"""

import functools
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery import signals
from celery.concurrency.asynpool import AsynPool
from langgraph.errors import GraphInterrupt
from langgraph.pregel import _runner

from graphs import running
from graphs.questions import question_of
from producers.chaos.outside import StandIn
from producers.chaos.record import Attempt, Recorder, current_attempt
from producers.chaos.trial_file import TrialFile
from producers.chaos.unledgered import Limits, Observer
from producers.chaos.wires import Wires
from workers import drain
from workers.claimed import Claimed
from workers.turn import Turn


def install(path: Path) -> None:
    """Record what this worker's turns do, as the trial's file says."""
    trial = TrialFile.read(path)
    os.chdir(trial.folder)
    recorder = Recorder(trial.record)
    limits = Limits(frozenset(trial.own), frozenset(trial.allow), trial.named)
    Wires(Observer(recorder, limits, trial.project)).install()
    running.stand_in = StandIn(recorder, trial.results, trial.real)
    _record_turns(recorder, frozenset(trial.kept))
    _record_nodes(recorder)
    # One turn to a process: what a graph keeps in memory is gone at the next. So processes
    # are many, and the pool is to replace them soon.
    drain._AT_LEAST = 0.0
    AsynPool.timers = property(lambda pool: {pool.maintain_pool: 0.02})
    signals.worker_before_create_process.connect(_spare_collections)


def _spare_collections(**_: Any) -> None:
    """What the parent has is looked at by no child's garbage collector."""
    gc.freeze()


def _record_turns(recorder: Recorder, kept: frozenset[str]) -> None:
    stock = Turn.run

    @functools.wraps(stock)
    def run(self: Turn, following: dict[str, Any] | None) -> Claimed | None:
        c = self.claimed
        token = current_attempt.set(Attempt(c.thread_id, c.epoch, c.seq))
        if c.thread_id in kept:
            self.control.place = _committing(self)
        try:
            recorder.write("attempt", kind=c.kind, crashes=c.crashes - 1)
            done = stock(self, following)
            recorder.write("end", outcome=self.outcome.kind.value)
            return done
        finally:
            current_attempt.reset(token)

    Turn.run = run  # type: ignore[method-assign]


def _committing(turn: Turn) -> Callable[[], str]:
    """The place of a superstep; what came before it is committed first."""

    def place() -> str:
        if turn._flushes():
            turn.claim.flush()
        return turn.place()

    return place


def _record_nodes(recorder: Recorder) -> None:
    runner: Any = _runner
    sync, asynchronous = runner.run_with_retry, runner.arun_with_retry

    @functools.wraps(sync)
    def run_with_retry(task: Any, *args: Any, **kwargs: Any) -> Any:
        about = _begin(recorder, task)
        try:
            return sync(task, *args, **kwargs)
        except GraphInterrupt as asked:
            _asked(recorder, about, asked)
            raise

    @functools.wraps(asynchronous)
    async def arun_with_retry(task: Any, *args: Any, **kwargs: Any) -> Any:
        about = _begin(recorder, task)
        try:
            return await asynchronous(task, *args, **kwargs)
        except GraphInterrupt as asked:
            _asked(recorder, about, asked)
            raise

    runner.run_with_retry = run_with_retry
    runner.arun_with_retry = arun_with_retry


def _begin(recorder: Recorder, task: Any) -> dict[str, Any]:
    namespace = str(task.config["configurable"].get("checkpoint_ns", task.name))
    parts = [p for p in namespace.split("|") if not p.isdigit()]
    step = task.config.get("metadata", {}).get("langgraph_step")
    node = "|".join(part.partition(":")[0] for part in parts)
    about = {"node": node, "place": f"{node}={step} {task.path}"}
    recorder.write("node", **about)
    return about


def _asked(recorder: Recorder, about: dict[str, Any], asked: GraphInterrupt) -> None:
    questions = [question_of(i) for i in (asked.args[0] if asked.args else ())]
    ids, payloads = [q.question_id for q in questions], [q.payload for q in questions]
    recorder.write("asked", **about, ids=ids, payloads=payloads)
