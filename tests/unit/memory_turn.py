"""A Turn over dicts that keeps to what the SQL does, and runs of real graphs under it.

What is under test here are effects and ids; the SQL has its own tests on real Postgres.
"""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from graphs import attempts
from graphs.control import Cancelled, ClaimLost, Control
from graphs.ledger import Intent, Ledger, Recorded, Result, current_turn

_sessions = itertools.count(1)


class Killed(BaseException):
    """The process dies here."""


@dataclass
class Row:
    """A row of effects, or of keyed_effects."""

    name: str
    args_hash: str
    first_started_at: float
    started_at: float
    state: str = "intent"
    attempts: int = 1
    result: tuple[str, bytes] | None = None
    error: dict[str, Any] | None = None


@dataclass
class Database:
    """What outlives a turn. ``offset`` moves its clock."""

    effects: dict[tuple[str, str], Row] = field(default_factory=dict)
    keyed: dict[str, Row] = field(default_factory=dict)
    locks: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    commits: int = 0
    offset: float = 0.0
    saver: InMemorySaver = field(default_factory=InMemorySaver)

    def now(self) -> float:
        return time.monotonic() + self.offset

    def rows(self) -> list[tuple[str, str, str, int]]:
        """(request_id, name, state, attempts) of all effects."""
        return [(i, r.name, r.state, r.attempts) for (_, i), r in self.effects.items()]


class MemoryTurn:
    """One claim on a thread."""

    def __init__(self, db: Database, graph: str, key: str, tenant: str, generation: int) -> None:
        self.db = db
        self.graph, self.key, self.tenant, self.generation = graph, key, tenant, generation
        self.thread_id = f"{tenant}/{graph}:{key}" if tenant else f"{graph}:{key}"
        self.message_seq = 1
        self.session = next(_sessions)
        self.epoch = db.epochs[self.thread_id] = db.epochs.get(self.thread_id, 0) + 1
        self.buffer: dict[str, Result] = {}
        self.checks = 0
        self.committed_at = time.monotonic()
        self.lock = threading.RLock()

    def intend(self, intent: Intent) -> Recorded:
        with self.lock:
            self._commit()
            if self.thread_id in self.db.cancelled:
                raise Cancelled()
            key = intent.effect_key
            if key is not None and self.db.locks.setdefault(key, self.session) != self.session:
                return Recorded("busy", 0, None, None, None, 0.0, 0.0)
            keyed = None if key is None else self._look(self.db.keyed, key, intent)
            if key is not None and keyed is not None and keyed.state not in ("new", "intent"):
                self.db.locks.pop(key, None)
            own = self._look(self.db.effects, (self.thread_id, intent.request_id), intent)
            return own if keyed is None else keyed

    def _look(self, table: dict[Any, Row], key: Any, intent: Intent) -> Recorded:
        now = self.db.now()
        row = table.get(key)
        if row is None:
            table[key] = Row(intent.name, intent.args_hash, now, now)
            return Recorded("new", 1, intent.args_hash, None, None, 0.0, 0.0)
        age, first_age = now - row.started_at, now - row.first_started_at
        if row.state == "intent" and intent.again:
            row.attempts += 1
            row.started_at = now
        state: Any = row.state
        return Recorded(state, row.attempts, row.args_hash, row.result, row.error, age, first_age)

    def note(self, result: Result) -> None:
        with self.lock:
            self._fence()
            self.buffer[result.request_id] = result

    def flush(self) -> None:
        with self.lock:
            self._commit()

    def check(self) -> None:
        self.checks += 1
        with self.lock:
            self._commit()

    def last_barrier_age(self) -> float:
        return time.monotonic() - self.committed_at

    def _fence(self) -> None:
        if self.db.epochs[self.thread_id] != self.epoch:
            raise ClaimLost()

    def _commit(self) -> None:
        self._fence()
        self.db.commits += 1
        self.committed_at = time.monotonic()
        for result in self.buffer.values():
            rows: list[tuple[dict[Any, Row], Any]] = [
                (self.db.effects, (self.thread_id, result.request_id))
            ]
            if result.effect_key is not None:
                rows.append((self.db.keyed, result.effect_key))
                self.db.locks.pop(result.effect_key, None)
            for table, key in rows:
                if result.state == "forgotten":
                    table.pop(key, None)
                    continue
                row = table[key]
                row.state, row.result, row.error = result.state, result.result, result.error
                row.attempts = max(row.attempts, result.attempts)
        self.buffer.clear()

    def end(self, commit: bool) -> None:
        """An orderly end commits; a crash loses what is buffered. Both unlock."""
        if commit:
            with contextlib.suppress(ClaimLost):
                self._commit()
        self.buffer.clear()
        for key, session in [*self.db.locks.items()]:
            if session == self.session:
                del self.db.locks[key]


@dataclass
class Ran:
    """What came of one turn."""

    value: Any
    error: BaseException | None
    ledger: Ledger
    turn: MemoryTurn


class Runner:
    """Runs turns of one graph; ``db`` is what they share."""

    #: "sync" fails in LangGraph with a subgraph of checkpointer=False.
    durability: Any = "sync"

    def __init__(self, builder: Any, db: Database | None = None, name: str = "g") -> None:
        self.db = db or Database()
        self.name = name
        #: Set: the worker wants its slot back.
        self.leaving = threading.Event()
        self.graph = (
            builder.copy({"checkpointer": self.db.saver})
            if hasattr(builder, "checkpointer")
            else builder.compile(checkpointer=self.db.saver)
        )

    def run(
        self, step: Any, key: str = "k", tenant: str = "", generation: int = 1, **fleet: Any
    ) -> Ran:
        """One turn; what it raised is in the answer, unless it is a failure of the test."""
        turn = MemoryTurn(self.db, self.name, key, tenant, generation)
        ledger = Ledger(turn, self.leaving.is_set)
        token = current_turn.set(ledger)
        suffix = f"#{generation}" if generation > 1 else ""
        config: Any = {
            "configurable": {
                "thread_id": turn.thread_id + suffix,
                "fleet_key": key,
                "fleet_graph": self.name,
                "fleet_tenant": tenant,
                **fleet,
            }
        }
        try:
            value, error = self._invoke(step, config), None
        except (Control, Killed, Exception) as exc:
            value, error = None, exc
        finally:
            current_turn.reset(token)
            ledger.close()
        turn.end(commit=not isinstance(error, Killed))
        return Ran(value, error, ledger, turn)

    def _invoke(self, step: Any, config: Any) -> Any:
        return self.graph.invoke(step, config, durability=self.durability)

    def done(self, step: Any, **kw: Any) -> Any:
        """One turn that must not fail; gives the graph's value."""
        ran = self.run(step, **kw)
        if ran.error is not None:
            raise ran.error
        return ran.value

    def snapshot(self, key: str = "k") -> Any:
        return self.graph.get_state({"configurable": {"thread_id": f"{self.name}:{key}"}})


class AsyncRunner(Runner):
    """The same through ainvoke."""

    def _invoke(self, step: Any, config: Any) -> Any:
        return asyncio.run(self.graph.ainvoke(step, config, durability=self.durability))


@contextlib.contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, point: str, hit: int = 1) -> Iterator[None]:
    """The process dies at the n-th passing of a failpoint."""
    left = [hit]

    def failpoint(name: str, _: object) -> None:
        if name == point:
            left[0] -= 1
            if left[0] == 0:
                raise Killed(point)

    with monkeypatch.context() as patched:
        patched.setattr(attempts, "failpoint", failpoint)
        yield
