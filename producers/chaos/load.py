"""The work of the soak: refunds in flight all the time, sent and answered as services do.

Whatever a door says of an outage, the message is sent again under its id until it is
accepted; some are sent twice although they were.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..client import Fleet
from ..errors import FleetUnavailable
from .arena import Arena
from .asking import Asking
from .books import Expected, Sent, like
from .chains import values

_LOOK_EVERY = 0.05
#: One of so many messages is sent once more.
_TWICE = 8


@dataclass(frozen=True)
class Story:
    """One way of an order. ``suffixes``: one thread each, all at the same time. ``weight``: of
    the stories. ``refunds``, ``notices``: what the shop is to have of it in its books.
    ``given``: the input, by the order's id."""

    name: str
    amount: str
    answer: str | None = None
    graph: str = "refund"
    refunds: int = 1
    notices: int = 1
    weight: int = 1
    suffixes: tuple[str, ...] = ("",)
    given: Callable[[str], dict[str, Any]] = lambda _: {"user_id": "u_42"}

    def threads(self, order: str) -> list[str]:
        return [f"{self.graph}:{order}{suffix}" for suffix in self.suffixes]


STORIES = (
    Story("below the limit", "141.50", weight=4),
    Story("approved", "1500.00", "approved", weight=3),
    Story("rejected", "1500.00", "rejected", refunds=0, weight=2),
)


class Load:
    """Sends in a thread of its own between `begin` and `stop`. ``sent``: what was accepted."""

    def __init__(self, arena: Arena, stories: Sequence[Story], seed: int, in_flight: int) -> None:
        self.arena = arena
        self.sent: dict[tuple[str, str], Sent] = {}
        self.orders: list[tuple[Story, str]] = []
        self.unavailable = 0
        self._stories = list(stories)
        self._source = random.Random(f"load {seed}")
        self._in_flight = in_flight
        self._fleet = Fleet(arena.stack.postgres_url, arena.stack.redis_url, timeout=10)
        self._open: dict[str, tuple[Story, str]] = {}
        self._unsure: list[tuple[str, dict[str, Any]]] = []
        self._answered: set[tuple[str, str]] = set()
        self._told: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {}
        self._ask = Asking(arena.stack.postgres_url)
        self._feeding = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._error: BaseException | None = None

    # Before the fire

    def tell(self, patience: float) -> None:
        """Run each story once without faults, to know how it is to end."""
        told = {story.name: (story, self._new(story)) for story in self._stories}
        self._until_done(patience)
        with self._ask.session() as conn:
            for name, (story, order) in told.items():
                ends = {
                    suffix: values(conn, thread)
                    for suffix, thread in zip(story.suffixes, story.threads(order), strict=True)
                }
                self._told[name] = (order, ends)

    # Meanwhile

    def begin(self) -> None:
        self._feeding.set()
        self._thread.start()

    def stop(self, goes_on: Callable[[], None], patience: float) -> bool:
        """Begin nothing more and see to what is under way; whether all came to its end.

        goes_on: called now and then. patience: seconds without any progress.
        """
        self._feeding.clear()
        left, changed = len(self._open), time.monotonic()
        while self._thread.is_alive() and (self._open or self._unsure):
            goes_on()
            if len(self._open) != left:
                left, changed = len(self._open), time.monotonic()
            if time.monotonic() - changed > patience:
                break
            time.sleep(_LOOK_EVERY)
        self.close()
        return not (self._open or self._unsure)

    def close(self) -> None:
        """End the thread; raises what ended it before."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(30)
        self._fleet.close()
        self._ask.close()
        self.check()

    def check(self) -> None:
        """Raise what has ended the thread, if something has."""
        if self._error is not None:
            raise self._error

    # Afterwards

    def expected(self) -> dict[str, Expected]:
        """What is to have become of each thread."""
        found: dict[str, Expected] = {}
        for story, order in self.orders:
            told, ends = self._told[story.name]
            for suffix, thread in zip(story.suffixes, story.threads(order), strict=True):
                state = like(ends[suffix], {told: order}, volatile=("refund_id", "receipt"))
                found[thread] = Expected("done", state)
        return found

    def effects(self) -> Mapping[str, int]:
        """How often each business key is to be in the shop's books."""
        found: Counter[str] = Counter()
        for story, order in self.orders:
            found[f"refund of {order}"] += story.refunds
            found[f"notice about {order}"] += story.notices
        return +found

    # In the thread

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self._round()
                self._ended.wait(_LOOK_EVERY)
        except BaseException as exc:
            self._error = exc

    def _until_done(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while self._open:
            self._round()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done without any fault: {', '.join(self._open)}")
            time.sleep(_LOOK_EVERY)

    def _round(self) -> None:
        again, self._unsure = self._unsure, []
        for call, args in again:
            self._send(call, args)
        for thread, status, question in self._ask("chaos_open", threads=[*self._open]) or []:
            if status == "done":
                del self._open[thread]
            elif question and (thread, question) not in self._answered:
                self._answered.add((thread, question))
                story, order = self._open[thread]
                self._twice("answer", self._answer(story, order, thread, question))
        while self._feeding.is_set() and len(self._open) < self._in_flight and not self._unsure:
            weights = [story.weight for story in self._stories]
            self._new(self._source.choices(self._stories, weights)[0])

    def _new(self, story: Story) -> str:
        order = f"S{len(self.orders):06d}"
        self.orders.append((story, order))
        self.arena.shop("PUT", f"/admin/orders/{order}", user_id="u_42", amount=story.amount)
        for thread in story.threads(order):
            self._open[thread] = (story, order)
            key = thread.partition(":")[2]
            self._twice(
                "submit",
                {"graph": story.graph, "key": key, "input": story.given(order)}
                | {"message_id": f"start-{key}"},
            )
        return order

    def _answer(self, story: Story, order: str, thread: str, question: str) -> dict[str, Any]:
        found = {"thread_id": thread, "question_id": question, "value": story.answer}
        return found | {"message_id": f"answer-{order}"}

    def _twice(self, call: str, args: dict[str, Any]) -> None:
        self._send(call, args)
        if self._source.randrange(_TWICE) == 0:
            self._send(call, args)

    def _send(self, call: str, args: dict[str, Any]) -> None:
        try:
            receipt = getattr(self._fleet, call)(**args)
        except FleetUnavailable:
            self.unavailable += 1
            self._unsure.append((call, args))
            return
        message = (receipt.thread_id, receipt.message_id)
        self.sent[message] = Sent(*message)
