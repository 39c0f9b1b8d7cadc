"""The fire: kills one after the other, and beside them one trouble at a time.

All of it happens in one thread, by the plan of a seed; what is being done to the fleet is
over when `rage` returns, but for workers that are still starting.
"""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from .arena import Arena, Seat
from .plan import Strike
from .takeovers import Takeovers

_LOOK_EVERY = 0.01
#: Kills that may wait for workers to be ready.
_PUT_OFF = 12


Heal = Callable[[], None]
T = TypeVar("T")


class Fire:
    """``kills`` and ``troubles``: how many of each kind there were. ``processes``: how many
    died in those kills."""

    def __init__(
        self,
        arena: Arena,
        kills: Iterator[Strike],
        troubles: Iterator[Strike],
        takeovers: Takeovers,
    ) -> None:
        self.arena = arena
        self.takeovers = takeovers
        self.kills: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()
        self.processes = 0
        self._put_off: list[Strike] = []
        self._planned = (kills, troubles)
        self._trouble: Strike | None = None
        self._heal: Heal = _nothing
        self._heal_at = 0.0

    def rage(self, goes_on: Callable[[], bool]) -> None:
        """Strike until it is over; what has been begun is put right then."""
        kills, troubles = self._planned
        trouble = next(troubles)
        kill_at, trouble_at = time.monotonic(), time.monotonic() + trouble.after
        try:
            while goes_on():
                now = time.monotonic()
                if self._trouble is not None and now >= self._heal_at:
                    self._recover()
                    trouble = next(troubles)
                    trouble_at = now + trouble.after
                elif self._trouble is None and now >= trouble_at:
                    self._begin(trouble)
                # What a slow machine has not got done is not caught up with.
                if now >= kill_at and (kill := self._strike(kills)):
                    kill_at = time.monotonic() + kill.after
                self.takeovers.look()
                time.sleep(_LOOK_EVERY)
        finally:
            self._recover()

    # Kills

    def _strike(self, planned: Iterator[Strike]) -> Strike | None:
        """One kill: of what was put off, else the next. One that nobody is there for, as
        while new workers start, is put off."""
        for kill in self._put_off:
            if self._kill(kill):
                self._put_off.remove(kill)
                return kill
        while len(self._put_off) < _PUT_OFF:
            if self._kill(kill := next(planned)):
                return kill
            self._put_off.append(kill)
        return None

    def _kill(self, strike: Strike) -> bool:
        """Whether there was somebody to be killed."""
        seats = self.arena.targets()
        if strike.kind == "pool child":
            # Of all: those that are left are not hit more often for it.
            seat = _picked(self.arena.seats, strike.pick)
            return seat in seats and self._kill_child(strike, seat)
        # Two workers at a time are down at most, in trouble one, but for when all are.
        down = sum(not seat.frozen for seat in self.arena.seats) - len(seats)
        if down > (0 if self._trouble else 1):
            return False
        killed = {
            "all workers": seats,
            "leader": self._leaders(seats)[:1],
            "worker": [_picked(seats, strike.pick)] if len(seats) > 1 else [],
        }[strike.kind]
        if not killed:
            return False
        self._kill_workers(killed, watched=len(killed) == 1)
        self.kills[strike.kind] += 1
        return True

    def _kill_child(self, strike: Strike, seat: Seat) -> bool:
        if not (pids := self.arena.pool(seat)):
            return False
        # Another digit of the same number.
        pid = _picked(pids, strike.pick * 1000 % 1)
        try:
            os.kill(pid, signal.SIGSTOP)
            held = self.takeovers.held([pid])
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.takeovers.begin(held)
        self.kills[strike.kind] += 1
        self.processes += 1
        return True

    def _kill_workers(self, seats: list[Seat], watched: bool) -> None:
        pids = {pid for seat in seats for pid in self.arena.pool(seat)}
        if watched:
            seats[0].child.send(signal.SIGSTOP, group=True)
            held = self.takeovers.held(pids)
        else:
            held = {}
        for seat in seats:
            seat.child.kill_group()
        self.takeovers.begin(held)
        self.processes += len(seats) + len(pids)
        for seat in seats:
            self.arena.replace(seat)

    def _leaders(self, seats: list[Seat]) -> list[Seat]:
        rows = self.arena.ask("sweep_leader") or []
        names = {row[0] for row in rows}
        return [seat for seat in seats if f"fleet-sweeper {seat.process.worker}" in names]

    # Troubles

    def _begin(self, strike: Strike) -> None:
        if strike.kind == "worker frozen" and not self.arena.targets():
            return
        begin = getattr(self, f"_{strike.kind.replace(' ', '_')}")
        self._trouble = strike
        self._heal = begin(strike) or _nothing
        self._heal_at = time.monotonic() + strike.lasts
        self.troubles[strike.kind] += 1

    def _recover(self) -> None:
        heal, self._heal, self._trouble = self._heal, _nothing, None
        heal()

    def _worker_frozen(self, strike: Strike) -> Heal:
        """The zombie: it is taken for gone, and comes back."""
        seat = _picked(self.arena.targets(), strike.pick)
        child, seat.frozen = seat.child, True
        child.send(signal.SIGSTOP, group=True)

        def thaw() -> None:
            child.send(signal.SIGCONT, group=True)
            seat.frozen = False

        return thaw

    def _postgres_restarted(self, _: Strike) -> Heal:
        self.arena.end("Postgres", signal.SIGINT)
        return lambda: self.arena.again("Postgres")

    def _postgres_crashed(self, _: Strike) -> Heal:
        self.arena.end("Postgres", signal.SIGQUIT)
        return lambda: self.arena.again("Postgres")

    def _sessions_terminated(self, _: Strike) -> None:
        self.arena.ask("chaos_terminate")

    def _broker_restarted(self, _: Strike) -> Heal:
        self.arena.end("broker", signal.SIGKILL)
        return lambda: self.arena.again("broker")

    def _broker_wiped(self, _: Strike) -> None:
        self.arena.broker.flushall()

    def _broker_frozen(self, _: Strike) -> Heal:
        child = self.arena.running["broker"]
        child.send(signal.SIGSTOP)

        def thaw() -> None:
            child.send(signal.SIGCONT)

        return thaw

    def _postgres_cut_off(self, _: Strike) -> None:
        self.arena.to_postgres.cut()

    def _postgres_out_of_reach(self, _: Strike) -> Heal:
        self.arena.to_postgres.black_hole()
        return self.arena.to_postgres.pass_on

    def _broker_cut_off(self, _: Strike) -> None:
        self.arena.to_broker.cut()

    def _broker_out_of_reach(self, _: Strike) -> Heal:
        self.arena.to_broker.black_hole()
        return self.arena.to_broker.pass_on


def _nothing() -> None:
    pass


def _picked(of: list[T], pick: float) -> T:
    return of[int(pick * len(of))]
