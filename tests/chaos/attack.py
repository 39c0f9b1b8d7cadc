"""Tells stories to a standing fleet whose processes die at their places, and does what people
and upstream services would do meanwhile: send again, answer, see to what is in doubt.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from producers import AnswerRefused, NotInDoubt
from producers.chaos.books import Act, Expected, Sent, about, shop_acts
from producers.chaos.chains import values
from producers.chaos.checker import check
from producers.chaos.findings import Report
from producers.wakeup import NO_LIMIT, Wake, push
from tests.acceptance.standing import Standing
from tests.chaos.scenarios import PROCESS, Case, expected
from tests.harness import ROOT, clean_environment, eventually
from tests.worker_processes import Worker

QUEUE = "fleet"
#: Wake-ups that a worker may have in hand: one per slot that it runs, one that it has fetched.
IN_HAND = 4


class Attack:
    """A fleet, and the cases that it is attacked with."""

    def __init__(self, it: Standing, folder: Path, graphs: Path) -> None:
        self.it = it
        self.folder = folder
        self.cases: list[Case] = []
        self.sent: dict[tuple[str, str], Sent] = {}
        self.groups: list[int] = []
        self.killed = 0
        self._graphs = graphs
        self._spec = folder / "failpoints"
        self._answered: set[tuple[str, str]] = set()
        self._senders = Senders(it, folder)

    def arm_senders(self, spec: Sequence[str]) -> None:
        self._senders.arm(spec)

    # Workers

    def start(self, number: int, spec: Sequence[str]) -> list[Worker]:
        """Workers with these failpoints; those of processes wait to be let loose."""
        self._spec.write_text("\n".join(spec) + "\n")
        self.it.once.mkdir(exist_ok=True)
        for point in PROCESS:
            for name in (point, f"{point}.2"):
                (self.it.once / name).touch()
        return self._start(number)

    def _start(self, number: int) -> list[Worker]:
        started = self.it.start(
            number, concurrency=2, failpoints=f"@{self._spec}", graphs_file=self._graphs
        )
        self.groups += [worker.pid for worker in started]
        return started

    def let_loose(self, point: str, times: int = 1) -> None:
        """The process's failpoint acts so often, from now on."""
        for name in (point, f"{point}.2")[:times]:
            (self.it.once / name).unlink(missing_ok=True)

    def replace_dead(self) -> int:
        """Start a worker for each that was killed; how many."""
        dead = [w for w in self.it.workers if w.child.poll() is not None]
        new = len(dead) - self.killed
        if new:
            self.killed = len(dead)
            self._start(new)
        return new

    # Senders

    def begin(self, cases: Sequence[Case]) -> None:
        """Send what starts each; those whose sender is to die one by one, the others at once."""
        self.cases += cases
        for case in cases:
            if case.story.slow:
                self.it.shop.fault("orders", "slow", seconds=case.story.slow, order_id=case.order)
            if case.story.honours_no_keys:
                self.it.shop.fault("refunds", "ignore_keys", order_id=case.order)
        calmly = [c for c in cases if c.sending != "start" or c.story.attacked]
        self.it.fleet.submit_many(self._start_of(c, 0) for c in calmly)
        for case in calmly:
            self._log(case.story.thread(case.order), f"start-{case.order}")
        for case in cases:
            if case not in calmly:
                self._send(case, "submit", **self._start_of(case, 0))
            self._wake(case)

    def _start_of(self, case: Case, number: int) -> dict[str, Any]:
        graph, _, key = case.story.thread(case.order, number).partition(":")
        return {
            "graph": graph,
            "key": key,
            "input": case.story.input(case.order),
            "message_id": f"start-{case.order}",
        }

    def _send(self, case: Case, call: str, **args: Any) -> None:
        """By a process that dies of it, again until it is through, as an upstream service does."""
        self._senders.send(call, args)
        thread = args.get("thread_id") or f"{args['graph']}:{args['key']}"
        self._log(thread, args["message_id"])

    def _log(self, thread: str, message: str) -> None:
        self.sent[thread, message] = Sent(thread, message)

    def _wake(self, case: Case) -> None:
        """A wake-up of its own for each time that whoever takes it is to die."""
        if case.arm and case.arm.point == "claim.before_lock":
            wake = Wake(QUEUE, case.thread, NO_LIMIT)
            push(self.it.broker.client, [wake] * (case.arm.times + 1))

    # People

    def attend(self) -> bool:
        """One round of all that waits for somebody; whether every case has come to its end."""
        status = dict(self.it.database.fetch("SELECT thread_id, status FROM fleet.threads"))
        by_thread = {
            c.story.thread(c.order, n): c for c in self.cases for n in range(len(c.story.suffixes))
        }
        for thread, question in self.it.database.fetch(
            "SELECT thread_id, question_id FROM fleet.questions WHERE status = 'open'"
        ):
            self._answer(by_thread[thread], thread, question)
        for thread in [t for t, s in status.items() if s == "in_doubt"]:
            self._settle(by_thread[thread], thread)
        self._begin_others(status)
        return all(status.get(thread) == "done" for thread in by_thread)

    def _begin_others(self, status: dict[str, str]) -> None:
        """The second thread of a business effect: where the first is attacked, while somebody
        takes over from it."""
        acted: Counter[str] | None = None
        for case in self.cases:
            if len(case.story.suffixes) < 2:
                continue
            first, second = (case.story.thread(case.order, n) for n in (0, 1))
            if (second, f"start-{case.order}") in self.sent:
                continue
            if acted is None:
                acted = self.acted()
            busy = case.story.attacked == 0 and case.arm is not None and case.sending is None
            arm = case.arm
            if status.get(first) == "done" or (
                busy and arm and acted[arm.at(case.order)] >= arm.times
            ):
                start = self._start_of(case, 1)
                if case.sending == "start" and case.story.attacked == 1:
                    self._send(case, "submit", **start)
                else:
                    self.it.fleet.submit(**start)
                    self._log(second, start["message_id"])
                self._wake(case)

    def _answer(self, case: Case, thread: str, question: str) -> None:
        if (thread, question) in self._answered:
            return
        self._answered.add((thread, question))
        args = {
            "thread_id": thread,
            "question_id": question,
            "value": case.story.answer,
            "message_id": f"answer-{case.order}",
        }
        try:
            if case.sending == "answer":
                self._send(case, "answer", **args)
            else:
                self.it.fleet.answer(**args)
                self._log(thread, args["message_id"])
        except AnswerRefused as refused:
            raise AssertionError(f"{case}: {refused}") from refused

    def _settle(self, case: Case, thread: str) -> None:
        """Look into the provider's books, and say so."""
        if self._resolving(thread):
            return
        for effect in self.it.fleet.status(thread).effects:
            if effect.state != "intent":
                continue
            refunds = self.it.shop.books(case.order)["refunds"]
            done = [r for r in refunds if r["request_id"] == effect.request_id]
            number = sum(t == thread and m.startswith("resolve") for t, m in self.sent)
            args = {
                "thread_id": thread,
                "request_id": effect.request_id,
                "happened": bool(done),
                "result": {k: done[0][k] for k in ("refund_id", "status")} if done else None,
                "message_id": f"resolve-{case.order}" + (f"-{number}" if number else ""),
            }
            if case.sending == "resolve" and not number:
                self._send(case, "resolve", **args)
                continue
            # A person's word that was on its way may have come just now.
            with contextlib.suppress(NotInDoubt):
                self.it.fleet.resolve(**args)
                self._log(thread, args["message_id"])

    def _resolving(self, thread: str) -> bool:
        """Whether a person's word is on its way already."""
        sql = """SELECT count(*) FROM fleet.messages
            WHERE thread_id = %s AND kind = 'resolve' AND status IN ('pending', 'claimed')"""
        return bool(self.it.database.value(sql, thread))

    def until_done(self, timeout: float) -> None:
        """Attend to everything until all cases have come to their ends."""
        self._attend_until(lambda done: done, timeout)

    def lose_workers(self, points: Sequence[str]) -> None:
        """Let each of these failpoints kill a worker, while everything goes on."""
        wanted = self.killed + len(points)
        for point in points:
            self.let_loose(point)
        self._attend_until(lambda _: self.killed >= wanted, 60)

    def _attend_until(self, condition: Callable[[bool], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition(self.attend()):
            self.replace_dead()
            assert time.monotonic() < deadline, self.unfinished()
            time.sleep(0.2)

    # What came of it

    def acted(self) -> Counter[str]:
        """How often each failpoint has acted, by its name in the log."""
        return Counter(name for _, name, _ in self.it.workers.hits()) + self._senders.acted()

    def unfinished(self) -> str:
        rows = self.it.database.fetch(
            """SELECT t.thread_id, t.status, t.last_error, m.seq, m.kind, m.status, m.crashes
            FROM fleet.threads t JOIN fleet.messages m USING (thread_id)
            WHERE t.status <> 'done' ORDER BY 1, 4"""
        )
        return "not done in time:\n" + "\n".join(str(row) for row in rows[:40])

    def states(self) -> dict[str, dict[str, Any]]:
        """The values of each thread."""
        with self.it.database.connect() as conn:
            threads = conn.execute("SELECT thread_id FROM fleet.threads").fetchall()
            return {thread: values(conn, thread) for (thread,) in threads}

    def judge(self, told: dict[str, str], states: dict[str, dict[str, Any]]) -> Report:
        """The checker's report; told: the order of each story without faults."""
        wanted: dict[str, Expected] = {}
        effects: Counter[str] = Counter()
        for case in self.cases:
            wanted |= expected(case, states, told[case.story.name])
            effects[f"refund of {case.order}"] += case.story.refunds
            effects[f"notice about {case.order}"] += case.story.notices
        acts: list[Act] = about(shop_acts(self.it.shop.books()), [c.order for c in self.cases])

        def report() -> Report:
            with self.it.database.connect() as conn:
                return check(
                    conn,
                    self.it.broker.client,
                    sent=[*self.sent.values()],
                    expected=wanted,
                    acts=acts,
                    effects=+effects,
                    groups=self.groups,
                    abandoned=IN_HAND * self.killed,
                )

        # A turn that has just ended still lets go.
        try:
            return eventually(lambda: (found := report()).ok and found, timeout=20)
        except AssertionError:
            return report()

    def close(self) -> None:
        self._senders.close()


class Senders:
    """The process that has the senders as its children; see `tests.chaos.sender`."""

    def __init__(self, it: Standing, folder: Path) -> None:
        self._it = it
        self._folder = folder
        self._process: Any = None
        self._log = folder / "senders.log"
        self._spec: Sequence[str] = ()

    def arm(self, spec: Sequence[str]) -> None:
        self._spec = spec

    def send(self, call: str, args: dict[str, Any]) -> None:
        """Until a sender has lived through it."""
        if self._process is None:
            file = self._folder / "senders"
            file.write_text("\n".join(self._spec) + "\n")
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.chaos.sender",
                    self._it.database.url,
                    self._it.broker.url,
                ],
                env=clean_environment(
                    failpoints=f"@{file}",
                    failpoint_log=self._log,
                    failpoint_once=self._folder / "once-sent",
                ),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        for _ in range(4):
            self._process.stdin.write(json.dumps({"call": call, "args": args}) + "\n")
            self._process.stdin.flush()
            code = int(self._process.stdout.readline())
            if code == 0:
                return
            assert code == -9, f"{call} {args} ended with {code}"
        raise AssertionError(f"{call} {args} is never through")

    def acted(self) -> Counter[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return Counter(line.split()[1] for line in lines)

    def close(self) -> None:
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait(10)
