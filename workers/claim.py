"""The claim: the right to write one thread, and the only way to write it.

Session advisory lock, row lock and epoch are taken by one SQL function; the object here
stands for them. Lock and writes share one connection on purpose: losing it loses both.
A failed barrier poisons the claim, and a closed one refuses everything, so a node's
left-over thread can write nothing.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg

from graphs.control import Cancelled, ClaimLost, Control
from graphs.ledger import Intent, Recorded, Result
from infra import metrics
from infra.failpoints import failpoint
from infra.sql import query
from workers.buffer import WriteBuffer
from workers.claimed import BARRIER, FINISH, Claimed, Reply
from workers.session import NOTHING, Call, Session, Then

T = TypeVar("T")

# Failpoints at each side of a barrier; those of the end's are turn.before_unlock and
# turn.after_commit.
_INTENT = ("barrier.before_intent", "barrier.after_intent")
_FLUSH = ("barrier.before_flush", "barrier.after_flush")


class WriteRefused(Control):
    """Postgres refused the turn's rows themselves (not the connection, not the epoch)."""

    def __init__(self, error: psycopg.Error) -> None:
        said = error.diag.message_primary or str(error).strip()
        super().__init__(f"Postgres refused the turn's rows: {said}")
        state = error.sqlstate or ""
        # 53 to 58: resources, limits, an operator's intervention, the system. The others
        # come of functions and types that a deploy changes under a session.
        self.transient = state[:2] in ("40", "53", "54", "55", "57", "58", "0A", "XX") or (
            state in ("42883", "42704")
        )


class StateUnstorable(Control):
    """A value of the thread's state can't be serialized."""

    def __init__(self, thread_id: str, reason: BaseException) -> None:
        super().__init__(f"the state of {thread_id} can't be stored: {reason}")


class Claim:
    """One claim, from ``fleet.claim`` to ``fleet.finish``. Implements graphs.ledger.Turn."""

    def __init__(self, session: Session, claimed: Claimed) -> None:
        self.conn = session
        self.claimed = claimed
        self.buffer = WriteBuffer()
        self.lock = threading.RLock()
        self.stop_requested = False
        self._closed = False
        self._poison: BaseException | None = None
        #: Business effects whose lock this turn holds.
        self._keys: set[str] = set()
        self._confirmed = self._heard = time.monotonic()
        self.thread_id = claimed.thread_id
        self.generation = claimed.generation
        self.tenant = claimed.tenant
        self.graph = claimed.graph
        self.key = claimed.key
        self.message_seq = claimed.seq
        #: Where failpoints are met.
        self.place: Callable[[], str] = claimed.place

    # What graphs may ask of a claim

    def intend(self, intent: Intent) -> Recorded:
        """Commit what is buffered and the intent. Raises ClaimLost, Cancelled."""
        reply = self._barrier(intent)
        if reply.stop:
            raise Cancelled(f"{self.thread_id} was cancelled before {intent.name} was called")
        assert reply.state is not None
        return Recorded(
            state=reply.state,  # type: ignore[arg-type]
            attempts=reply.attempts or 0,
            args_hash=reply.args_hash,
            result=(reply.result_type, reply.result)
            if reply.result_type is not None and reply.result is not None
            else None,
            error=reply.error,
            age=reply.age or 0.0,
            first_age=reply.first_age or 0.0,
        )

    def note(self, result: Result) -> None:
        """Buffer an effect's result for the next barrier."""
        with self.lock:
            self.require_open()
            self.buffer.results[result.request_id] = result
            self.buffer.touch()

    def flush(self) -> None:
        """Barrier now, if anything is buffered."""
        with self.lock:
            self.require_open()
            if self.buffer.since is not None:
                self._barrier(None)

    def check(self) -> None:
        """Ask Postgres whether the claim is still ours. Raises ClaimLost."""
        self._barrier(None)

    def pulse(self) -> None:
        """Ask whether the thread is cancelled; both ends notice so when the connection is dead."""
        with self.asking():
            row = self.conn.execute(query("cancel_requested"), [self.thread_id]).fetchone()
            self.stop_requested = self.stop_requested or bool(row and row[0])

    @contextmanager
    def asking(self) -> Iterator[None]:
        """For questions to Postgres beside the writes. Raises ClaimLost where they fail."""
        with self.lock:
            self.require_open()
            try:
                yield
            except psycopg.Error as exc:
                self._poison = ClaimLost(str(exc).strip() or type(exc).__name__)
                raise self._poison from exc
            self._heard = time.monotonic()

    def silence(self) -> float:
        """Seconds since Postgres last said anything on the connection."""
        return time.monotonic() - self._heard

    def last_barrier_age(self) -> float:
        """Seconds since Postgres last confirmed the claim."""
        return time.monotonic() - self._confirmed

    # Closing

    def require_open(self) -> None:
        """Raise ClaimLost unless the claim may still write."""
        if isinstance(self._poison, Control):
            raise self._poison
        if self._poison is not None:
            raise StateUnstorable(self.thread_id, self._poison)
        if self._closed:
            raise ClaimLost(f"the turn of {self.thread_id} that started this has ended")

    def poison(self, reason: Exception) -> None:
        """Something of this turn can't be stored: nothing more may be sent or written."""
        with self.lock:
            if self._poison is None:
                self._poison = reason

    def close(self) -> None:
        """Refuse everything from now on and drop what is buffered."""
        with self.lock:
            self._closed = True
            self.buffer.clear()

    @property
    def lost(self) -> bool:
        """Whether the connection or the epoch is gone: nothing can be written any more."""
        return isinstance(self._poison, ClaimLost)

    @property
    def open(self) -> bool:
        """Whether it may still write, as far as is known."""
        return self._poison is None and not self._closed

    def drop_refused(self) -> bool:
        """Let the turn end without the rows of a poisoned claim, if it is one; whether it was.
        Raises ClaimLost."""
        with self.lock:
            if self.lost:
                self.require_open()
            if self._poison is None:
                return False
            self.buffer.clear()
            self._poison = None
            return True

    def finish(
        self,
        end: dict[str, Any],
        following: dict[str, Any] | None,
        events: Sequence[list[Any]] = (),
        then: Then = NOTHING,
    ) -> Claimed:
        """Commit the end of the turn with its last events, unlock, and claim what comes next.

        What is claimed may be given before the commit: see workers.session, which then does
        what is to be done after it. A poisoned claim ends without the rows that were refused.
        Raises ClaimLost.
        """
        with self.lock:
            self.drop_refused()
            self.require_open()
            self.buffer.events += events
            rows, blob = self.buffer.render()
            c = self.claimed
            failpoint("turn.before_unlock", self.place)
            args = (
                c.thread_id,
                c.checkpoint_thread,
                c.epoch,
                c.generation,
                rows,
                blob,
                end,
                following,
            )
            then = Then(partial(self._ended, then.made), then.lost)
            reply = self._execute(FINISH, args, "end", len(blob), then)
            self.close()
            if reply.result != "claimed" or reply.thread_id == c.thread_id:
                # Nobody to wait for it, or one whose events come after this one's.
                self.settle()
            return reply

    def _ended(self, made: Callable[[], None]) -> None:
        failpoint("turn.after_commit", self.place)
        made()

    def settle(self) -> None:
        """Wait for the commit that the claim came with. Raises ClaimLost."""
        try:
            self.conn.settle()
        except psycopg.Error as exc:
            self._poison = ClaimLost(str(exc).strip())
            raise self._poison from exc

    # Inside

    def _barrier(self, intent: Intent | None) -> Reply:
        with self.lock:
            self.require_open()
            rows, blob = self.buffer.render()
            c = self.claimed
            body = None
            self._keys -= {r.effect_key for r in self.buffer.results.values() if r.effect_key}
            if intent is not None:
                held = intent.effect_key in self._keys
                body = {"held": held} | {name: getattr(intent, name) for name in Intent.__slots__}
            before, after = _FLUSH if intent is None else _INTENT
            place = partial(self._place_of, intent)
            failpoint(before, place)
            reply = self._execute(
                BARRIER,
                (
                    c.thread_id,
                    c.checkpoint_thread,
                    c.epoch,
                    c.generation,
                    c.seq,
                    rows,
                    blob,
                    body,
                ),
                "flush" if intent is None else "intent",
                len(blob),
            )
            if intent is not None and intent.effect_key and reply.state in ("new", "intent"):
                self._keys.add(intent.effect_key)
            self.buffer.clear()
            failpoint(after, place)
            self.stop_requested = self.stop_requested or reply.stop
            return reply

    def _place_of(self, intent: Intent | None) -> str:
        return self.place() if intent is None else f"{self.place()}/{intent.name}"

    def _execute(
        self, call: Call[T], args: Sequence[Any], purpose: str, size: int, then: Then | None = None
    ) -> T:
        """``purpose``, ``size`` in bytes: for the metrics."""
        started = time.monotonic()
        try:
            if then is None:
                row = self.conn.call(call, args)
            else:
                row = self.conn.call_ahead(call, args, then)
        except psycopg.Error as exc:
            if self.conn.closed or exc.sqlstate == "FL001":
                self._poison = ClaimLost(str(exc).strip() or type(exc).__name__)
            else:
                self._poison = WriteRefused(exc)
            raise self._poison from exc
        except (TypeError, ValueError, RecursionError) as exc:
            # Made of nothing that JSON knows; nothing was sent.
            self._poison = exc
            raise StateUnstorable(self.thread_id, exc) from exc
        self._confirmed = self._heard = time.monotonic()
        metrics.barrier(purpose, self._confirmed - started, size)
        return row
