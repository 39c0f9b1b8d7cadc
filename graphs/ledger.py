"""The ledger: what a turn knows of its effects.

A :class:`Ledger` lives as long as one attempt at one message: it numbers calls, remembers
results that are not committed yet, refuses calls that a replay could not tell apart, and
after :meth:`Ledger.close` lets no left-over thread send or write. What it asks of the turn,
and records there, is in `graphs.turn`, and can be imported from here too.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from graphs import position, request_ids
from graphs.control import ClaimLost, Control, RetryLater
from graphs.errors import AmbiguousEffect, EffectOutsideTurn
from graphs.turn import Intent, Recorded, Result, Turn
from infra.settings import get_settings

__all__ = [
    "FRESH",
    "Call",
    "Intent",
    "Ledger",
    "Recorded",
    "Result",
    "Turn",
    "current_turn",
]

#: Seconds that a barrier vouches for the claim.
FRESH = 2.0
#: Seconds between two looks, in a pause, at whether the turn is to stop.
_LOOK = 0.1


@dataclass(eq=False, slots=True)
class Call:
    """One call of an effect, from :meth:`Ledger.enter` to :meth:`Ledger.leave`."""

    name: str
    request_id: str
    effect_key: str | None
    args_hash: str
    execution: "_Execution"
    slot: tuple[str, str | None, str | None]
    ordinal: int
    position: position.Position
    overlapped: bool = False


@dataclass(slots=True)
class _Execution:
    """One execution of a task: its running and its counted calls by (name, label, key).

    unsettled: ordinals of calls that ended without a result, by slot and arguments. A
    node that calls such a one again means the same call, not another."""

    scratchpad: Any
    running: dict[tuple[str, str | None, str | None], Call] = field(default_factory=dict)
    count: dict[tuple[str, str | None, str | None], int] = field(default_factory=dict)
    unsettled: dict[tuple[Any, str], int] = field(default_factory=dict)


class Ledger:
    """The effects of one turn. ``stopped``: the first control error that left an effect; no
    further one begins after it, whatever the node made of it. ``stopping``: whether the
    worker wants the turn to end soon."""

    def __init__(self, turn: Turn, stopping: Callable[[], bool] = lambda: False) -> None:
        self.turn = turn
        self._stopping = stopping
        self.stopped: Control | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._executions: dict[int, _Execution] = {}
        self._running: set[str] = set()
        self._results: dict[str, tuple[str, Result]] = {}
        self._places: dict[str, position.Position] = {}
        self._renewed: dict[str, str] = {}

    # Calls

    def enter(self, name: str, label: str | None, key: str | None, args_hash: str) -> Call:
        """Number a call. Raises AmbiguousEffect, EffectOutsideTurn, or a control error."""
        place = position.here()
        self._require_own_thread(place.thread_id)
        with self._lock:
            self._require_going()
            execution = self._execution(place.execution)
            slot = (name, label, key)
            if other := execution.running.get(slot):
                other.overlapped = True
                raise AmbiguousEffect(_overlap(name))
            again = execution.unsettled.get((slot, args_hash))
            ordinal = execution.count.get(slot, 0) if again is None else again
            if key is None:
                effect_key = None
                request_id = self._number(place, name, label, ordinal)
            else:
                effect_key = request_ids.effect_key(self.turn.tenant, name, key)
                request_id = request_ids.for_key(self.turn.tenant, name, key)
            while renewed := self._renewed.get(request_id):
                request_id, effect_key = renewed, request_ids.renewed_key(effect_key, renewed)
            if request_id in self._running:
                raise RetryLater(0.5, f"effect {name} ({request_id}) is still under way", False)
            if again is None:
                execution.count[slot] = ordinal + 1
            call = Call(name, request_id, effect_key, args_hash, execution, slot, ordinal, place)
            execution.running[slot] = call
            self._running.add(request_id)
            return call

    def leave(self, call: Call) -> None:
        """The call is over, whichever way."""
        with self._lock:
            call.execution.running.pop(call.slot, None)
            self._running.discard(call.request_id)
            if call.request_id in self._results:
                call.execution.unsettled.pop((call.slot, call.args_hash), None)
            else:
                call.execution.unsettled[call.slot, call.args_hash] = call.ordinal

    def require_alone(self, call: Call) -> None:
        """Raise AmbiguousEffect if another call has met this one before anything was sent."""
        if call.overlapped:
            raise AmbiguousEffect(_overlap(call.name))

    def place(self, call: Call) -> str:
        """Where a failpoint meets the call: the message, its nodes and the call's number."""
        name, label, key = call.slot
        detail = "" if label is None and key is None else f"[{label or key}]"
        turn, nodes = self.turn, position.nodes(call.position)
        return f"{turn.thread_id}/{turn.message_seq}/{nodes}/{name}{detail}.{call.ordinal}"

    # The turn, for as long as the ledger is open

    def intend(self, call: Call, policy: str, again: bool) -> Recorded:
        """Record the intent; see :class:`Intent` for ``again``. A call whose failure was
        renewed (`fleet retry --new-request`) goes on under the id that takes its place."""
        while True:
            self._require_open()
            recorded = self.turn.intend(
                Intent(call.request_id, call.name, policy, call.args_hash, call.effect_key, again)
            )
            renewed = (recorded.error or {}).get("renewed_as", call.request_id)
            if renewed == call.request_id:
                return recorded
            with self._lock:
                self._running.discard(call.request_id)
                self._running.add(renewed)
                self._renewed[call.request_id] = renewed
                call.request_id = renewed
                call.effect_key = request_ids.renewed_key(call.effect_key, renewed)

    def ready(self) -> None:
        """Raise a control error unless the call may be sent now."""
        with self._lock:
            self._require_going()
        # The sweep may have ended a turn that is silent for longer.
        if self.turn.last_barrier_age() >= min(FRESH, get_settings().turn_timeout / 2):
            self.turn.check()
            self._require_open()

    def known(self, call: Call) -> tuple[str, Result] | None:
        """(args_hash, result) of this turn's own memory, committed or not."""
        with self._lock:
            return self._results.get(call.request_id)

    def record(self, call: Call, result: Result, at_once: bool) -> None:
        """Note a result: committed ``at_once``, or at the next barrier."""
        self._require_open()
        self.turn.note(result)
        if result.state != "forgotten":
            with self._lock:
                self._results[call.request_id] = (call.args_hash, result)
        if at_once:
            self.turn.flush()

    def remember(self, call: Call, result: Result) -> None:
        """A result that was recorded before this turn. The call is settled by it: the next one
        like it is another."""
        with self._lock:
            self._results[call.request_id] = (call.args_hash, result)

    def pause(self, seconds: float) -> bool:
        """Sleep, at most to the end of the turn; True as soon as the turn is to stop."""
        for step in _steps(seconds):
            self._require_open()
            if self._stopping():
                return True
            self._closed.wait(step)
        self._require_open()
        return False

    async def apause(self, seconds: float) -> bool:
        """As :meth:`pause`, in async code."""
        for step in _steps(seconds):
            self._require_open()
            if self._stopping():
                return True
            await asyncio.sleep(step)
        self._require_open()
        return False

    def stop(self, control: Control) -> None:
        """Remember why the turn stops: a node that swallows the error changes nothing."""
        with self._lock:
            if self.stopped is None:
                self.stopped = control

    def close(self) -> None:
        """The turn is over: whatever still runs may neither send nor write."""
        with self._lock:
            self._closed.set()
            self._executions.clear()
            self._places.clear()

    # Inside

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise ClaimLost(
                f"the turn of {self.turn.thread_id} that this call was part of has ended"
            )

    def _require_going(self) -> None:
        self._require_open()
        if self.stopped is not None:
            raise self.stopped

    def _require_own_thread(self, thread_id: str | None) -> None:
        turn = self.turn
        own = f"{turn.thread_id}#{turn.generation}" if turn.generation > 1 else turn.thread_id
        if thread_id != own:
            raise EffectOutsideTurn(
                f"an effect was called in a graph run of thread {thread_id!r} while the turn is of "
                f"{own!r}: a graph called inside a node must not be given a thread_id of its own"
            )

    def _execution(self, scratchpad: Any) -> _Execution:
        # The entry keeps the object alive, and so its id its own.
        return self._executions.setdefault(id(scratchpad), _Execution(scratchpad))

    def _number(self, place: position.Position, name: str, label: str | None, ordinal: int) -> str:
        if place.restarted:
            raise AmbiguousEffect(
                f"effect {name} is called in a subgraph with a history of its own "
                "(checkpointer=True) that its node has called before: give it an identity "
                "with .keyed(...)"
            )
        turn = self.turn
        request_id = request_ids.for_call(
            turn.thread_id, turn.generation, place.root, place.path, name, label, ordinal
        )
        before = self._places.setdefault(request_id, place)
        # A call that its caller's retry makes again is the same call.
        if before.attempts == place.attempts and _collide(before.chain, place.chain):
            raise AmbiguousEffect(
                f"effect {name} is called at one place of a subgraph that runs several times in "
                f'one node: tell the calls apart with .at("...")'
            )
        self._places[request_id] = place
        return request_id


def _steps(seconds: float) -> Iterator[float]:
    """A pause in parts, as many as its time allows; without length, one look."""
    end = time.monotonic() + seconds
    yield min(seconds, _LOOK)
    while (left := end - time.monotonic()) > 0:
        yield min(left, _LOOK)


def _collide(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two tasks stand at one place. One that is run again does not: it, or a task
    that it runs in, is then the same task in another execution."""
    for level, (a, b) in enumerate(zip(one, other, strict=False)):
        if a is not b:
            return level > 0 and not position.same_task(a, b)
    return False


def _overlap(name: str) -> str:
    return (
        f"two calls of effect {name} overlap in one node, so a replay could not tell which is "
        f'which: tell them apart with .at("...")'
    )


current_turn: ContextVar[Ledger | None] = ContextVar("current_turn", default=None)
