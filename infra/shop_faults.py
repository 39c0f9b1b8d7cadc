"""What the dev shop can be told to do wrong, and the calls that it holds.

A fault is `{"target", "mode", "count"?, "seconds"?, "retry_after"?, "status"?, "order_id"?}`:
it applies to the next `count` calls (all, if left out) of the target that concern the
order (any, if left out).

    slow          wait `seconds` (1), then go on          hang         the same with 3600
    fail_before   answer `status` (503), do nothing       busy_429     429 with Retry-After
    fail_after    do it, then answer `status` (500)       refuse       `status` (402), do nothing
    drop_before   close the connection, do nothing        ignore_keys  act again for a known key
    drop_after    do it, then close the connection        hold_after   do it, then keep the reply
                                                                       back until released
`hold_after` applies to calls that really acted, not to a known key's repetition: the
worker that takes over gets its reply while the dead one's call is still held.
"""

import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from infra.shop_books import TARGETS

BEFORE = ("slow", "hang", "fail_before", "busy_429", "refuse", "drop_before", "ignore_keys")
AFTER = ("fail_after", "drop_after")
HOLD = ("hold_after",)


class BadFault(ValueError):
    """A fault that cannot be understood; the text says why."""


@dataclass
class Fault:
    target: str
    mode: str
    count: int | None = None
    seconds: float | None = None
    retry_after: float = 1
    status: int | None = None
    order_id: str | None = None


@dataclass
class _Held:
    number: int
    target: str
    about: str
    key: str
    since: float
    free: threading.Event = field(default_factory=threading.Event)


class Faults:
    """The faults in force. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []
        self._held: dict[int, _Held] = {}
        self._numbers = itertools.count(1)
        # Replaced at each clear(), which ends the waits that began before it.
        self._cleared = threading.Event()

    def add(self, wanted: dict[str, Any]) -> Fault:
        """Put a fault in force. Raises BadFault."""
        known = BEFORE + AFTER + HOLD
        if wanted.get("target") not in TARGETS:
            raise BadFault(f"The target of a fault is one of {', '.join(TARGETS)}.")
        if wanted.get("mode") not in known:
            raise BadFault(f"The mode of a fault is one of {', '.join(known)}.")
        for name in ("count", "seconds", "retry_after", "status"):
            value = wanted.get(name, 0)
            number = isinstance(value, int) or (
                isinstance(value, float) and name in ("seconds", "retry_after")
            )
            if value is not None and not (number and value >= 0):
                raise BadFault(f"{name} is a number that is not negative.")
        if unknown := wanted.keys() - Fault.__dataclass_fields__.keys():
            raise BadFault(f"A fault has no field {min(unknown)}.")
        fault = Fault(**{name: value for name, value in wanted.items() if value is not None})
        with self._lock:
            self._faults.append(fault)
        return fault

    def take(self, target: str, about: str, modes: tuple[str, ...]) -> list[Fault]:
        """The faults of these modes that apply to one call now; their counts go down."""
        if not self._faults:
            return []
        with self._lock:
            taken = [f for f in self._faults if f.target == target and f.mode in modes]
            taken = [f for f in taken if f.order_id is None or f.order_id in about]
            for fault in taken:
                if fault.count is not None:
                    fault.count -= 1
            self._faults = [f for f in self._faults if f.count is None or f.count > 0]
        return taken

    def clear(self) -> None:
        """End all faults, the waits that they have begun, and all holds."""
        with self._lock:
            self._faults = []
            self._cleared.set()
            self._cleared = threading.Event()
        self.release(None)

    def wait(self, seconds: float) -> None:
        self._cleared.wait(seconds)

    def hold(self, target: str, about: str, key: str) -> None:
        """Keep the calling thread until its call is released."""
        held = _Held(next(self._numbers), target, about, key, time.monotonic())
        with self._lock:
            self._held[held.number] = held
        held.free.wait()

    def held(self) -> list[dict[str, Any]]:
        with self._lock:
            return [
                {
                    "id": h.number,
                    "target": h.target,
                    "order_id": h.about,
                    "request_id": h.key,
                    "seconds": round(time.monotonic() - h.since, 3),
                }
                for h in self._held.values()
            ]

    def release(self, order_id: str | None) -> int:
        """Let the held calls about this order go on, or all of them; gives their number."""
        with self._lock:
            free = [h for h in self._held.values() if order_id is None or order_id in h.about]
            for held in free:
                del self._held[held.number]
                held.free.set()
        return len(free)
