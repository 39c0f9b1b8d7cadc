"""A turn: the work of one message, as one record that goes through named steps.

``look`` (what is to be run) → ``drive`` (run the graph) → ``judge`` (what came of it) →
``finish`` (one transaction). Whatever happens in between becomes one of the outcomes of
workers.outcomes; nothing else decides.
"""

import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

from langgraph.errors import GraphDrained, is_invalid_resume
from langgraph.types import Command, Interrupt, PregelTask, StateSnapshot

from graphs.control import Cancelled, ClaimLost, InDoubt, RetryLater, control_of
from graphs.ledger import Ledger, current_turn
from graphs.pending import missing_nodes
from graphs.questions import question_of, questions_of
from graphs.registry import RegisteredGraph
from infra.errors import FleetError
from infra.failpoints import failpoint
from producers.messages import KINDS
from workers import amend, deadlines, failures, resolve, shutdown
from workers.answered import AnsweredSaver, reached
from workers.checkpoint_clock import lift
from workers.claim import Claim, StateUnstorable, WriteRefused
from workers.claimed import Claimed
from workers.gate import gate
from workers.head import channels_below
from workers.leftovers import leftovers, newest_worker
from workers.outcomes import Kind, Outcome, backoff, end, give_up, too_new
from workers.runs import Run
from workers.session import Then
from workers.slot import Slot
from workers.streaming import Telling
from workers.supersteps import Supersteps, place

log = logging.getLogger("fleet.turn")

#: No step: nothing is left to run.
_NOTHING = object()


class Turn:
    """One attempt at one message, from its claim to its end."""

    def __init__(self, slot: Slot, claimed: Claimed) -> None:
        self.slot = slot
        self.claimed = claimed
        self.claim = Claim(slot.connection(), claimed)
        self.setup = Run.of(claimed)
        self.run_id = self.setup.id
        self.control = Supersteps()
        self.saver = AnsweredSaver(self.claim, slot.serde, self.control)
        self.telling = Telling(slot, self.claim)
        self.saver.hearing = self.telling.hearing
        self.place = partial(place, claimed, self.saver.heads)
        self.claim.place = self.control.place = self.place
        self.outcome = Outcome(Kind.LOST, "not run")
        self.leaving: BaseException | None = None

    def run(self, following: dict[str, Any] | None) -> Claimed | None:
        """Run the steps and commit the end; give the next claim, or None.

        ``following``: as ``fleet.finish`` takes it, None to stop after this turn.
        """
        try:
            failpoint("claim.after_lock", self.claimed.place)
            self.telling.events.begin()
            lift(self.claimed.checkpoint_clock, self.claimed.checkpoint_id)
            suspect = self.claimed.crashes > 1
            way = gate.alone(still_waiting=self.claim.check) if suspect else gate.ordinary()
            with way as entered:
                if entered:
                    return self._steps(following)
            self.outcome = Outcome(Kind.RELEASED, delay=0.0)
            return self._finish(None)
        except (ClaimLost, WriteRefused) as lost:
            # Whatever lock this session still holds goes with it.
            self.slot.disconnect()
            if self.claim.lost:
                self.slot.keeper.excuses.owe(self.claim)
            self.outcome = Outcome(Kind.LOST, str(lost))
            log.warning("turn of %s lost: %s", self.claimed.thread_id, lost)
            return None
        except BaseException:
            # A fault of ours, or the end of the process: the sweep hands the message on.
            self.slot.disconnect()
            raise
        finally:
            self.claim.close()
            self.slot.graphs.end_turn()

    # The steps

    def _steps(self, following: dict[str, Any] | None) -> Claimed | None:
        with self.slot.keeper.watching(self.claim, self._flushes()):
            self.outcome = self._attempt()
        return self._finish(following)

    def _attempt(self) -> Outcome:
        ledger = self.saver.ledger = Ledger(self.claim, stopping=self.saver.stopping)
        token = current_turn.set(ledger)
        try:
            outcome = self._work()
        except BaseException as exc:
            if failures.interrupts(exc):
                raise
            if failures.ends(exc):
                self.leaving = exc
                return Outcome(Kind.RELEASED, delay=0.0)
            # What stopped the ledger wins over what a node or a task group made of it.
            return self._caught(ledger.stopped or control_of(exc))
        else:
            # A node swallowed the control error; the turn stops all the same.
            return self._caught(ledger.stopped) if ledger.stopped is not None else outcome
        finally:
            ledger.close()
            current_turn.reset(token)

    def _work(self) -> Outcome:
        if self.claimed.kind == "resolve":
            return resolve.run(self)
        if self.claimed.kind == "amend" and (amended := amend.run(self)) is not None:
            return amended
        if self.claimed.kind not in KINDS:
            return too_new(self.claimed.kind, self._left())
        try:
            graph = self.slot.graph(self.claimed.graph, self.setup.config)
        except FleetError as exc:
            return Outcome(Kind.INCOMPATIBLE, str(exc), delay=self._left())
        if gone := self._missing_nodes(graph):
            reason = f"graph {graph.name} has no node {', '.join(gone)}, where this thread stands"
            return Outcome(Kind.INCOMPATIBLE, reason, delay=self._left())
        step = self._look(graph)
        if step is not _NOTHING:
            try:
                self._drive(graph, step)
            except Exception as exc:
                if not (is_invalid_resume(exc) and self.claimed.kind == "answer"):
                    raise
                # Nothing of the answer was kept: the question is asked again.
                return replace(self._judge(graph), error=failures.describe(exc))
        return reached(step, self._judge(graph), self.saver, self.claimed.attempt)

    def _look(self, graph: RegisteredGraph) -> Any:
        """What LangGraph is to be given: input, None (go on), a Command, or nothing."""
        c = self.claimed
        head = self.saver.root
        begun = head is not None and head.metadata.get("run_id") == self.run_id
        if c.kind in ("start", "input") and not begun:
            return self.setup.input
        if c.kind == "answer":
            question = c.payload["question_id"]
            if question in {i.id for i in self._interrupts()}:
                return Command(resume={question: c.payload["value"]})
            if graph.has_breakpoints and not begun:
                at_question = head is not None and question == head.checkpoint_id
                return None if at_question else _NOTHING
        state = self._state(graph)
        if not state.tasks:
            return _NOTHING
        unfinished = self._unfinished(state)
        if unfinished and all(t.interrupts for t in unfinished):
            return _NOTHING
        return None

    def _drive(self, graph: RegisteredGraph, step: Any) -> None:
        # What came of it is in the saver, and was heard meanwhile.
        options: dict[str, Any] = {
            "config": self.telling.heard(self.setup.driven_by(self.saver), graph),
            "context": self.setup.context,
            "stream_mode": [],
            "control": self.control,
        }
        if graph.is_async:
            run = graph.graph.astream(step, durability="sync", **options)
            self.slot.run_async(_exhaust(run))
            return
        for _ in graph.graph.stream(step, durability=self.slot.durability, **options):
            pass

    def _judge(self, graph: RegisteredGraph) -> Outcome:
        """Done or waiting; decided from the tasks, never from ``next`` alone."""
        root, known = self.saver.root, self.saver.root_is_known
        if known and not (root and root.interrupted()) and not graph.has_breakpoints:
            return Outcome(Kind.DONE, fingerprint=graph.fingerprint)
        questions = [question_of(i) for i in self._interrupts()]
        if not questions:
            state = self._state(graph)
            if not self._unfinished(state):
                return Outcome(Kind.DONE, fingerprint=graph.fingerprint)
            questions = questions_of(state)
        failpoint("turn.at_interrupt", self.place)
        asked = deadlines.rows(questions, self.claimed.thread_id)
        return Outcome(Kind.WAITING, questions=asked, fingerprint=graph.fingerprint)

    def _caught(self, exc: BaseException) -> Outcome:
        """What an exception out of the graph means."""
        match exc:
            case ClaimLost():
                raise exc
            case Cancelled():
                return Outcome(Kind.CANCELLED, str(exc), delay=0.0)
            case InDoubt():
                return Outcome(Kind.IN_DOUBT, str(exc))
            case RetryLater(counted=False):
                return Outcome(Kind.RELEASED, str(exc), delay=exc.delay)
            case RetryLater():
                return Outcome(Kind.RETRY, str(exc), delay=exc.delay)
            case GraphDrained():
                kind = Kind.CANCELLED if self.claim.stop_requested else Kind.DRAINED
                return Outcome(kind, delay=0.0)
            case StateUnstorable():
                return Outcome(Kind.DEAD, str(exc))
            case WriteRefused():
                return Outcome(Kind.RETRY if exc.transient else Kind.DEAD, str(exc))
            case _:
                failures.give_back(exc)
                log.exception("thread %s failed", self.claimed.thread_id, exc_info=exc)
                return failures.judged(exc, self.claimed.crashes, self.slot.settings.max_crashes)

    def _finish(self, following: dict[str, Any] | None) -> Claimed | None:
        written = self._ending(self.outcome)
        failpoint("turn.before_commit", self.place)
        if shutdown.requested() or self.leaving is not None:
            # What is claimed now could only be released again.
            following = None
        try:
            reply = self._commit(written, following)
        except WriteRefused as refused:
            # The rows can't be written, the reason can: the turn ends without them.
            kind = Kind.RETRY if refused.transient else Kind.DEAD
            reply = self._commit(self._ending(Outcome(kind, str(refused))), None)
        if self.leaving is not None:
            raise self.leaving
        return reply if reply.result == "claimed" else None

    def _commit(self, written: dict[str, Any], following: dict[str, Any] | None) -> Claimed:
        """Write the end, and tell of it once it is there."""
        hearing = self.telling.hearing
        # In one step: what a left-over thread writes is told of as well, or refused.
        with self.claim.lock:
            if self.claim.drop_refused():
                hearing.undone(self.saver.stored)
            last = self.telling.events.closing(written, self.outcome.kind, hearing.corrections)
            publish = partial(self.telling.events.publish, last)
            then = Then(publish, partial(self.slot.keeper.excuses.end_lost, self.claim))
            return self.claim.finish(written, following, last, then)

    def _ending(self, outcome: Outcome) -> dict[str, Any]:
        """What ``fleet.finish`` is to write for this outcome, which becomes the turn's."""
        settings = self.slot.settings
        self.outcome = give_up(outcome, self.claimed.failing_for, settings.give_up_after)
        delay = self.outcome.delay
        if delay is None and self.outcome.kind is Kind.RETRY:
            tries = max(self.claimed.failures, self.claimed.crashes - 1)
            delay = backoff(tries, settings.backoff_base, settings.backoff_max, self.slot.rng)
        return end(self.outcome, self.claimed.seq, delay or 0.0)

    # Looking things up

    def _state(self, graph: RegisteredGraph) -> StateSnapshot:
        return graph.graph.get_state(self.setup.driven_by(self.saver))

    def _interrupts(self) -> list[Interrupt]:
        return root.interrupts(self.slot.serde) if (root := self.saver.root) else []

    def _unfinished(self, state: StateSnapshot) -> list[PregelTask]:
        """Tasks without an output write; a task's result alone can be None when it is done."""
        finished = root.finished_tasks() if (root := self.saver.root) else set()
        return [t for t in state.tasks if t.id not in finished]

    def _missing_nodes(self, graph: RegisteredGraph) -> list[str]:
        """Nodes at which the thread stands and which the graph does not have."""
        # Not by the fingerprint alone: a failed turn may stand at a node of a newer release.
        root = self.saver.root
        if root is None:
            return []
        pending, serde = root.pending_nodes(self.slot.serde), self.slot.serde
        return missing_nodes(graph.graph, pending, lambda: channels_below(self.claim, root), serde)

    def _left(self) -> float:
        """Leave the thread to another release; seconds until its mail is due again."""
        newest = newest_worker(self.claim)
        return leftovers.leave(self.claimed.thread_id, self.slot.settings, newest)

    def _flushes(self) -> bool:
        """Static breakpoints: a checkpoint and the stop after it must commit together."""
        try:
            return not self.slot.registry.get(self.claimed.graph).has_breakpoints
        except FleetError:
            return False


async def _exhaust(run: AsyncIterator[Any]) -> None:
    async for _ in run:
        pass
