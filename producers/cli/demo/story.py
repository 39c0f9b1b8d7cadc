"""The demo's story: pay, kill, take over, ask, and let the shop's books decide.

The shop keeps the replies of three refunds back. It has paid them, and the fleet has not
heard of it yet: the moment at which queues lose work or pay twice. Two workers of two slots
serve, so one of them holds at least two of the three; that one is killed, and the other
has a slot free to take over with.
"""

import os
import time
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx

from infra.devservers import Stack
from infra.errors import FleetError, ServerFailed
from infra.settings import Settings

from ...client import Fleet
from ...errors import ProducerError, WaitTimeout
from ...local.deaths import Watched
from ...local.processes import (
    READY_WITHIN,
    Launcher,
    Process,
    environment,
    slot_pid,
    worker_ready,
)
from ...local.waiting import until
from ...status import SETTLED
from .orders import Decision, Ended, Order, Row, make_orders, problems, rows

_SLOTS = 2
_HELD = 3
_STEP_WITHIN = 30.0
#: The graph's call to the shop gives up after 10 s: the kill comes before.
_OTHERS_WITHIN = 5.0
_ROOT = Path(__file__).resolve().parents[3]
_LIMIT = Decimal(str(Settings.model_fields["approval_limit"].default))

Decide = Callable[[Sequence[Order]], dict[str, Decision]]


class Narrator(Protocol):
    """Who tells the story."""

    def say(self, text: str, style: str = "") -> None: ...
    def fail(self, title: str, lines: str) -> None: ...


def run(count: int, narrator: Narrator, decide: Decide) -> Ended:
    """The whole story. Raises FleetError where it can't go on."""
    narrator.say("Starting Postgres, a broker and a shop, in a temporary folder.")
    with Stack(durable=False) as stack:
        story = _Story(stack, make_orders(count, _LIMIT), narrator)
        try:
            return story.tell(decide)
        except (FleetError, ProducerError):
            # What died is the cause of whatever came of it.
            story.require_all()
            story.show_logs()
            raise
        finally:
            story.close()


class _Story:
    def __init__(self, stack: Stack, orders: list[Order], narrator: Narrator) -> None:
        self._stack = stack
        self._orders = orders
        self._say = narrator.say
        self._fail = narrator.fail
        self._fleet = Fleet(stack.postgres_url, stack.redis_url)
        self._http = httpx.Client(timeout=10)
        self._workers: list[Process] = []
        self._processes: list[Process] = []
        self._victim: Process | None = None
        lives = Watched(stack, lambda: (p for p in self._processes if p is not self._victim))
        self.require_all = lives.require_all

    def tell(self, decide: Decide) -> Ended:
        self._start()
        self._submit()
        victim, caught = self._catch()
        took = self._kill(victim, caught)
        self._say("A new worker starts in the dead one's place.")
        fresh = self._worker()
        decisions = self._decide(decide)
        self._ready(fresh)
        self._finish()
        found, wrong = self._audit(decisions)
        return Ended(found, wrong, took, victim.child.name, victim.child.pid, caught)

    # The steps

    def _start(self) -> None:
        graphs_file = _ROOT / "langgraph.json"
        # Nothing of the user's settings, nor of the folder they are in, gets into the demo.
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FLEET_")}
        urls = {"postgres_url": self._stack.postgres_url, "redis_url": self._stack.redis_url}
        folder = self._stack.data_dir
        plain = Launcher(self._stack, environment(kept), folder)
        shop, self._shop_url = plain.shop(0, folder / "books.jsonl")
        self._processes.append(shop)
        env = environment(kept, **urls, shop_url=self._shop_url, graphs_file=graphs_file)
        self._launcher = Launcher(self._stack, env, folder)
        for order in self._orders:
            path = f"/admin/orders/{order.order_id}"
            self._shop("PUT", path, user_id="u_42", amount=str(order.amount))
        _migrate(self._stack.postgres_url, graphs_file)
        self._say(f"Starting two Celery workers with {_SLOTS} slots each.")
        for worker in [self._worker(), self._worker()]:
            self._ready(worker)

    def _submit(self) -> None:
        asking = sum(order.asks for order in self._orders)
        self._shop("POST", "/admin/hold", target="refunds", count=self._to_hold)
        for order in self._orders:
            key = f"demo-{order.order_id}"
            self._fleet.submit("refund", order.order_id, {"user_id": "u_42"}, message_id=key)
        small = len(self._orders) - asking
        self._say(
            f"Submitted {len(self._orders)}: {small} small, refunded automatically; {asking} above "
            f"{_LIMIT}, for which a person is asked."
        )

    def _catch(self) -> tuple[Process, list[str]]:
        """The worker with most of the held refunds, all else being at rest; their orders."""
        self._until(lambda: len(self._held()) >= self._to_hold, "the shop to pay")
        self._rest(_OTHERS_WITHIN)
        by_worker: dict[int, list[str]] = {}
        for order_id in self._held():
            by_worker.setdefault(self._group(order_id), []).append(order_id)
        victim = max(self._workers, key=lambda w: len(by_worker.get(w.child.pid, ())))
        caught = by_worker.get(victim.child.pid, [])
        if not caught:
            raise ServerFailed("No refund could be caught in flight.", "Run `fleet demo` again.")
        return victim, caught

    def _kill(self, victim: Process, caught: list[str]) -> float:
        """kill -9; gives the seconds until other claims own all that was caught."""
        name, others = victim.child.name, [w for w in self._workers if w is not victim]
        orders = " and ".join(caught)
        self._say(f"The shop has paid {orders}, and the fleet has not heard of it yet.")
        epochs = {o: self._epoch(o) for o in caught}
        begun = time.monotonic()
        self._victim, self._workers = victim, others
        victim.child.kill_group()
        self._say(f"kill -9 to {name} (process group {victim.child.pid}), at that moment.", "red")
        until(
            lambda: all(self._epoch(o) > epoch for o, epoch in epochs.items()),
            _STEP_WITHIN,
            "another worker to take over",
            0.003,
        )
        took = time.monotonic() - begun
        self._say(
            f"{others[0].child.name} took over {orders} within {took * 1000:.0f} ms. It asks the "
            "shop again under the same request id, so the shop does not pay twice.",
            "green",
        )
        self._shop("DELETE", "/admin/faults")
        return took

    def _decide(self, decide: Decide) -> dict[str, Decision]:
        self._rest(_STEP_WITHIN)
        decisions: dict[str, Decision] = {
            order.order_id: "automatic" for order in self._orders if not order.asks
        }
        if waiting := [order for order in self._orders if order.asks]:
            decided = decide(waiting)
            for order in waiting:
                self._fleet.answer(
                    order.thread_id,
                    None,
                    decided[order.order_id],
                    message_id=f"demo-{order.order_id}-answer",
                    answered_by="demo",
                )
            decisions |= decided
        return decisions

    def _finish(self) -> None:
        for order in self._orders:
            self._until(partial(self._ended, order.thread_id), f"{order.thread_id} to end")
        self._say("All are done. What do the shop's books say?")

    def _audit(self, decisions: dict[str, Decision]) -> tuple[list[Row], list[str]]:
        books = self._shop("GET", "/admin/books")
        statuses = {}
        for order in self._orders:
            seen = self._fleet.status(order.thread_id)
            calls = [e.attempts for e in seen.effects if e.name == "payments.refund"]
            statuses[order.order_id] = (seen.status, sum(calls))
        found = rows(self._orders, decisions, statuses, books)
        return found, problems(self._orders, found, books["refunds"])

    # What they are made of

    @property
    def _to_hold(self) -> int:
        return min(_HELD, sum(not order.asks for order in self._orders))

    def _worker(self) -> Process:
        name = f"worker-{1 + sum(p.child.name.startswith('worker') for p in self._processes)}"
        worker = self._launcher.worker(name, "--concurrency", str(_SLOTS))
        self._workers.append(worker)
        self._processes.append(worker)
        return worker

    def _ready(self, worker: Process) -> None:
        self._until(partial(worker_ready, worker), f"{worker.child.name} to be ready", READY_WITHIN)

    def _until(self, fn: Callable[[], bool], what: str, within: float = _STEP_WITHIN) -> None:
        """Until it is so; raises ServerFailed after a while, and at once when something died."""

        def look() -> bool:
            self.require_all()
            return fn()

        until(look, within, what)

    def _ended(self, thread_id: str) -> bool:
        try:
            self._fleet.wait(thread_id, 0.5, until=SETTLED - {"waiting"})
        except WaitTimeout:
            return False
        return True

    def _rest(self, timeout: float) -> None:
        """Until nothing moves but what is held; a slow machine may be late with it."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self.require_all()
            held = set(self._held())
            threads = self._fleet.threads(limit=len(self._orders))
            if all(t.status in ("waiting", "done") or t.key in held for t in threads):
                return
            time.sleep(0.05)

    def _held(self) -> list[str]:
        return [h["order_id"] for h in self._shop("GET", "/admin/held")["held"]]

    def _epoch(self, order_id: str) -> int:
        return self._fleet.status(f"refund:{order_id}").epoch

    def _group(self, order_id: str) -> int:
        """The process group of the slot that owns the order's thread; 0 when nobody does."""
        owner = self._fleet.status(f"refund:{order_id}").owner
        try:
            return os.getpgid(slot_pid(owner)) if owner else 0
        except ProcessLookupError:
            return 0

    def _shop(self, method: str, path: str, **body: Any) -> Any:
        try:
            response = self._http.request(method, self._shop_url + path, json=body or None)
            return response.raise_for_status().json()
        except httpx.HTTPError as exc:
            raise ServerFailed(f"The shop does not answer: {exc}.", "Run it again.") from exc

    def show_logs(self) -> None:
        """What the processes said last: their logs go with the temporary folder."""
        for process in self._processes:
            self._fail(process.log_path.name, "\n".join(process.said().splitlines()[-15:]))

    def close(self) -> None:
        """End the workers at once: nothing is left to do for them."""
        self._fleet.close()
        self._http.close()
        for worker in self._workers:
            worker.child.kill_group()


def _migrate(postgres_url: str, graphs_file: Path) -> None:
    from graphs.registry import Registry
    from infra.migrate import migrate

    migrate(postgres_url, Registry.load(graphs_file).described())
