"""A trial: a graph's inputs, run without faults and then once for each place to die at.

Every run is a thread of a tenant of its own, so that its key is the input's, and neither
keyed effects nor anything else of the fleet's is shared between runs. The trial plays the
people too: it answers questions, and says of an effect in doubt whether it happened, by
the stand-in's book.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from graphs.registry import RegisteredGraph
from graphs.stored import SERDE
from graphs.values import plain
from infra.postgres import connect
from infra.sql import query

from ..client import Fleet
from ..errors import AnswerRefused, ProducerError
from ..local.processes import Process
from ..messages import thread_id
from ..status import SETTLED
from . import kills as places
from .errors import ChaosUsage
from .given import Answers, Input, no_result
from .kills import Kill
from .record import read
from .stage import Stage

#: Transient failures after which a run is taken for one that does not end.
_MOST_FAILURES = 5
_LOOK_EVERY = 0.05
#: Seconds in which the sweep takes a turn away that has shown no progress for the patience.
_SWEPT_WITHIN = 15.0


@dataclass(slots=True)
class Run:
    """One thread. kill None: without faults. status: the thread's in the end, or ``stuck``
    (nothing moved any more) or ``failing`` (again and again)."""

    name: str
    input: Input
    thread_id: str
    tenant: str
    kill: Kill | None = None
    status: str = ""
    error: str = ""
    #: ``{"kind", "payload", "answer"}`` in the order in which they were answered.
    questions: list[dict[str, Any]] = field(default_factory=list)
    #: Effects of which a person had to say whether they happened.
    resolved: list[str] = field(default_factory=list)
    state: Any = None


class Trial:
    """Runs on a stage."""

    def __init__(
        self, stage: Stage, graph: RegisteredGraph, answers: Answers, patience: float
    ) -> None:
        self._stage = stage
        self._graph = graph
        self._answers = answers
        self._patience = patience
        self._moved = 0.0

    def without_faults(self, inputs: Sequence[Input]) -> list[Run]:
        """Each input twice: what differs between the two does so without a kill."""
        runs = [self._run(i, n, letter) for n, i in enumerate(inputs, 1) for letter in "ab"]
        with self._stage.worker(places.noting()) as worker:
            self._drive(runs, worker)
        return runs

    def killed(self, baseline: Iterable[Run], most: int) -> list[Run]:
        """Each of the inputs once for each place that its first run without faults met."""
        runs = []
        for n, base in enumerate((r for r in baseline if r.tenant.endswith("a")), 1):
            if base.status != "done":
                continue
            found = places.met(self._stage.log, base.thread_id)
            for number, kill in enumerate(places.some(found, most), 1):
                runs.append(self._run(base.input, n, f"-k{number}", kill))
        spec = "\n".join(r.kill.entry(r.thread_id) for r in runs if r.kill)
        kept = [r.thread_id for r in runs if r.kill and r.kill.kept]
        with self._stage.worker(spec, kept) as worker:
            self._drive(runs, worker)
        return runs

    def _run(self, given: Input, n: int, suffix: str, kill: Kill | None = None) -> Run:
        tenant = f"i{n}{suffix}"
        thread = thread_id(self._graph.name, given.key, tenant)
        return Run(given.key + (suffix if kill else ""), given, thread, tenant, kill)

    # Driving

    def _drive(self, runs: Sequence[Run], worker: Process) -> None:
        for run in runs:
            self._submit(run)
        open_runs = {run.thread_id: run for run in runs}
        changed, before = time.monotonic(), None
        with Fleet(self._stage.stack.postgres_url, self._stage.stack.redis_url) as fleet:
            while open_runs:
                worker.require_alive()
                rows = [r for r in self._rows() if r["thread_id"] in open_runs]
                for row in rows:
                    if self._over(fleet, open_runs[row["thread_id"]], row):
                        del open_runs[row["thread_id"]]
                seen = [(r["thread_id"], r["status"], r["epoch"], r["claimed"]) for r in rows]
                if seen != before:
                    changed, before = time.monotonic(), seen
                elif time.monotonic() - changed > self._patience + _SWEPT_WITHIN:
                    self._give_up(open_runs.values())
                    break
                self._skip_waits(rows)
                time.sleep(_LOOK_EVERY)
        self._require_sound()
        for run in runs:
            run.state = self._state(run)

    def _submit(self, run: Run) -> None:
        urls = self._stage.stack.postgres_url, self._stage.stack.redis_url
        with Fleet(*urls, tenant=run.tenant) as fleet:
            fleet.submit_many([run.input.start])

    def _rows(self) -> list[dict[str, Any]]:
        with self._stage.conn.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(query("chaos_threads")).fetchall()

    def _over(self, fleet: Fleet, run: Run, row: dict[str, Any]) -> bool:
        """Whether the run is over; plays the people where it waits for them."""
        if row["failures"] >= _MOST_FAILURES:
            run.status, run.error = "failing", row["last_error"] or ""
            return True
        if row["claimed"] or row["wait"] is not None or row["status"] not in SETTLED:
            return False
        if row["status"] == "waiting":
            return self._answer(fleet, run)
        if row["status"] == "in_doubt":
            self._resolve(fleet, run)
            return False
        run.status, run.error = row["status"], row["last_error"] or ""
        return True

    def _answer(self, fleet: Fleet, run: Run) -> bool:
        # A graph that asks for ever would be answered for ever.
        if len(run.questions) > 100:
            run.status, run.error = "stuck", "it has asked more than 100 questions"
            return True
        for question in fleet.status(run.thread_id).questions[:1]:
            asked = Counter(str(q["kind"]) for q in run.questions)
            answer = self._answers.to(question, asked)
            try:
                number = len(run.questions) + 1
                fleet.answer(
                    run.thread_id,
                    question.question_id,
                    answer,
                    message_id=f"chaos-answer-{number}",
                    answered_by="chaos",
                )
            except AnswerRefused as refused:
                shown = json.dumps(question.payload, ensure_ascii=False)[:200]
                raise ChaosUsage(
                    f"The answer {json.dumps(answer)} does not fit the question {shown}: "
                    f"{refused.message}",
                    "Correct --answers.",
                ) from None
            about = {"kind": question.kind, "payload": question.payload, "answer": answer}
            run.questions.append(about)
        return False

    def _resolve(self, fleet: Fleet, run: Run) -> None:
        """As a person does who asks the provider."""
        sent = {f["request_id"] for f in read(self._stage.record) if f["what"] == "effect"}
        for effect in fleet.status(run.thread_id).effects:
            if effect.state != "intent":
                continue
            happened = effect.request_id in sent
            result = self._stage.results.get(effect.name) if happened else None
            try:
                fleet.resolve(run.thread_id, effect.request_id, happened, result)
            except ProducerError as error:
                run.error = error.message
            run.resolved.append(effect.name)

    def _give_up(self, runs: Iterable[Run]) -> None:
        for run in runs:
            run.status = "stuck"
            run.error = f"nothing moved for {self._patience:g} s"

    def _skip_waits(self, rows: Sequence[dict[str, Any]]) -> None:
        """Where all that is left waits for a time, the fleet's clock is moved there."""
        waits = [r["wait"] for r in rows if r["wait"] is not None]
        if waits and min(waits) > 0.3 and not any(r["claimed"] for r in rows):
            self._moved += min(waits)
            self._stage.conn.execute(query("chaos_move_clock"), {"seconds": self._moved})

    def _require_sound(self) -> None:
        """Raise ChaosUsage for what only the run could show to be missing."""
        for fact in read(self._stage.record):
            if fact["what"] == "no_result":
                raise no_result(fact["name"], fact["reason"])
            if fact["what"] == "refused":
                at = f" ({fact['site']})" if fact["site"] else ""
                by = f"Node {fact['node']}" if fact["node"] else "The graph"
                raise ChaosUsage(
                    f"{by} connects to {fact['host']}{at}, which a chaos run does not reach: it "
                    "would do so for real, once for each kill.",
                    f"Allow it with --allow {fact['host']}.",
                    host=fact["host"],
                )

    def _state(self, run: Run) -> Any:
        """As JSON holds it; what an @entrypoint gave, where the graph is one."""
        with connect(self._stage.stack.postgres_url, "fleet-chaos", row_factory=dict_row) as conn:
            graph = self._graph.graph.copy({"checkpointer": PostgresSaver(conn, serde=SERDE)})
            where: Any = {"configurable": {"thread_id": run.thread_id, "checkpoint_ns": ""}}
            return plain(graph.get_state(where).values)
