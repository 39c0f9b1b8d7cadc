"""What tests/chaos/machine.py drives: mailbox, ledger and turns in this process.

Two slots stand for two worker processes. What befalls a turn is decided at its failpoints
(:meth:`World.befall`): there its process dies, its connection is cut, or another slot
works beside it or takes over while it still believes that it has the thread.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from graphs.registry import Registry
from infra import failpoints
from infra.settings import get_settings
from producers import Fleet
from tests.chaos.outside import GRAPHS, provider
from tests.harness import Broker, Database, eventually, write_graphs
from workers.drain import drain
from workers.gate import Gate
from workers.slot import Slot
from workers.sweeper import Sweeper

#: Where a turn can be met; all of them within the slot's own Python thread.
TURN_POINTS = (
    "claim.after_commit",
    "claim.after_lock",
    "effect.before_intent",
    "barrier.before_intent",
    "barrier.after_intent",
    "effect.after_intent",
    "effect.before_call",
    "effect.after_call",
    "effect.after_result",
    "saver.mid_put",
    "turn.superstep",
    "turn.at_interrupt",
    "turn.before_commit",
    "turn.before_unlock",
    "turn.after_commit",
    "drain.before_next",
)
DOOR_POINTS = ("accept.before_commit", "accept.after_commit", "publish.before", "publish.after")
#: die: the process is gone. cut: its connection is. unlocked: another slot takes over, and
#: only the epoch stands between the two. beside: another slot tries to. cancel: a person does.
FATES = ("die", "cut", "unlocked", "beside", "cancel")

_EMPTY = """
DELETE FROM fleet.messages; DELETE FROM fleet.threads; DELETE FROM fleet.effects;
DELETE FROM fleet.keyed_effects; DELETE FROM fleet.questions; DELETE FROM fleet.events;
DELETE FROM checkpoints; DELETE FROM checkpoint_blobs; DELETE FROM checkpoint_writes;
"""


class Killed(KeyboardInterrupt):
    """The process is gone: nothing of ours catches it, as nothing runs after SIGKILL."""


class World:
    """One database, broker and provider, used by one example after the other."""

    def __init__(
        self, database: Database, broker: Broker, folder: Path, patch: pytest.MonkeyPatch
    ) -> None:
        self.database, self.broker = database, broker
        file = write_graphs(folder, **{name: f"tests.chaos.outside:{name}" for name in GRAPHS})
        database.register(file)
        registry = Registry.load(file)
        self.slots = [Slot(get_settings(), registry, "fleet", f"w{n}") for n in (0, 1)]
        for slot in self.slots:
            slot.rng = _Longest()
        self.fleet = Fleet(database.url, broker.url)
        self.sweeper: Sweeper | None = None
        self.conn = database.connect()
        self._serde = JsonPlusSerializer()
        self._act: Callable[[], None] | None = None
        patch.setattr(failpoints, "_act", self._met)
        # Each slot stands for a process of its own, and the gate is within one.
        for module in ("workers.turn", "workers.drain"):
            patch.setattr(f"{module}.gate", _Open())

    def begin_anew(self) -> None:
        """Empty, the clock at its own time, everything up."""
        failpoints.arm("")
        for slot in self.slots:
            slot.disconnect()
        self.nobody_holds_a_lock()
        self.conn.execute(_EMPTY)
        self.broker.client.flushdb()
        self.hours = 0.0
        self.move_clock(0.0)
        provider.begin_anew()
        self.new_leader()

    def close(self) -> None:
        failpoints.arm("")
        for slot in self.slots:
            slot.disconnect()
        if self.sweeper is not None:
            self.sweeper.session.drop()
        self.fleet.close()
        self.conn.close()

    # Time and chance

    def move_clock(self, hours: float) -> None:
        self.hours += hours
        self.conn.execute("SELECT fleet.move_clock(%s)", [f"{self.hours} h"])

    @contextmanager
    def befall(self, point: str, act: Callable[[], None]) -> Iterator[None]:
        """Within, the first time that `point` is met, this happens."""
        self._act = act
        failpoints.arm(f"{point}=note::1:1")
        try:
            yield
        finally:
            failpoints.arm("")

    def _met(self, *_: Any) -> None:
        act, self._act = self._act, None
        failpoints.arm("")
        if act is not None:
            act()

    # Workers

    def work(self, number: int, thread: str, point: str = "", fate: str = "") -> None:
        """The task's body for a wake-up, in slot `number`, and what becomes of it."""
        slot = self.slots[number]

        def act() -> None:
            self._strike(slot, self.slots[1 - number], thread, fate)

        # One that is killed takes its session with it.
        with self.befall(point, act) if point else _nothing(), suppress(Killed):
            drain(slot, thread)
        self.nobody_holds_a_lock()

    def new_leader(self) -> None:
        """Another worker sweeps from now on; it has called nobody yet."""
        if self.sweeper is not None:
            self.sweeper.session.drop()
        self.sweeper = Sweeper(get_settings(), "w@chaos", ["fleet"], 2, "prefork")

    def sweep(self) -> None:
        assert self.sweeper is not None
        self.sweeper.tick()

    def _strike(self, slot: Slot, other: Slot, thread: str, fate: str) -> None:
        match fate:
            case "die":
                self._cut(slot)
                raise Killed
            case "cut":
                self._cut(slot)
            case "unlocked":
                slot.connection().execute("SELECT pg_advisory_unlock_all()")
                _elsewhere(lambda: drain(other, thread))
            case "beside":
                _elsewhere(lambda: drain(other, thread))
            case "cancel":
                self.fleet.cancel(thread)

    def _cut(self, slot: Slot) -> None:
        pid = slot.connection().info.backend_pid
        slot.disconnect()
        eventually(lambda: not self.rows("SELECT FROM pg_stat_activity WHERE pid = %s", pid))

    def wakes(self) -> list[str]:
        """Take the wake-ups out of the queue; the threads that they name, oldest first."""
        raw: Any = self.broker.client.lrange("fleet", 0, -1)
        self.broker.client.delete("fleet")
        return [json.loads(m)["headers"]["argsrepr"][2:-3] for m in reversed(raw)]

    # What can be seen

    def rows(self, sql: str, *args: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(sql, args).fetchall()

    def nobody_holds_a_lock(self) -> None:
        """A session that is gone needs a moment to be gone."""
        sql = (
            "SELECT pid, objid FROM pg_locks WHERE locktype = 'advisory' AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        eventually(lambda: not self.rows(sql) or None, timeout=5, interval=0.002)

    def log_of(self, thread: str, generation: int) -> list[str]:
        """The channel `log` of the newest checkpoint."""
        name = f"{thread}#{generation}" if generation > 1 else thread
        found = self.rows(
            """SELECT b.type, b.blob FROM checkpoints c JOIN checkpoint_blobs b
               ON b.thread_id = c.thread_id AND b.checkpoint_ns = '' AND b.channel = 'log'
               AND b.version = c.checkpoint->'channel_versions'->>'log'
               WHERE c.thread_id = %s AND c.checkpoint_ns = ''
               ORDER BY c.checkpoint_id DESC LIMIT 1""",
            name,
        )
        return list(self._serde.loads_typed(found[0])) if found else []


class _Longest(random.Random):
    """Delays that do not run out by themselves: the clock is moved by steps of the machine."""

    def uniform(self, a: float, b: float) -> float:
        return 100 * b


class _Open(Gate):
    """A gate that keeps nobody waiting."""

    @contextmanager
    def alone(self, still_waiting: Callable[[], None]) -> Iterator[bool]:
        yield True

    @contextmanager
    def ordinary(self) -> Iterator[bool]:
        yield True

    def wait(self) -> bool:
        return True


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _elsewhere(work: Callable[[], Any]) -> None:
    """In a Python thread of its own, which knows nothing of the run that is under way here."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as exc:
            failed.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the other slot waits for this one"
    if failed:
        raise failed[0]


__all__ = ["DOOR_POINTS", "FATES", "TURN_POINTS", "Killed", "World"]
