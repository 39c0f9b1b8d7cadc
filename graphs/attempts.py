"""One call of an effect, step by step: intent, call, result, and what to do in doubt.

Written once for sync and async as a generator: it yields what is to be done (:class:`Do`)
and is sent what came of it; graphs.effects drives it. Each branch ends in a value, in an
error for the node (graphs.errors), or in a control error for the turn (graphs.control).
"""

import logging
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from graphs import faults
from graphs.control import InDoubt, RetryLater
from graphs.errors import EffectArgumentsChanged, EffectFailed, ResultUnstorable
from graphs.ledger import Call, Ledger, Recorded, Result
from graphs.results import Codec, Unstorable
from graphs.retries import Retry, Tries
from infra import metrics
from infra.failpoints import failpoint

log = logging.getLogger("fleet.effects")

#: Seconds after its timeout within which a call may still be under way.
GRACE = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found: the effect happened, with this result."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Spec:
    """What the decorator was told. Seconds throughout."""

    name: str
    policy: str
    key_ttl: float
    retry: Retry
    timeout: float
    lookup: Callable[..., Any] | None
    codec: Codec
    at_once: bool = False

    @property
    def settle(self) -> float:
        """How old an attempt must be before "not found" is believed and a person is asked."""
        return self.timeout + GRACE


class Act(Enum):
    """What the driver is to do."""

    YIELD = auto()
    """Let calls that were started together meet (nothing in sync code)."""
    CALL = auto()
    """Call the effect's function."""
    LOOK_UP = auto()
    """Call the lookup."""
    PAUSE = auto()
    """Sleep; True when the turn is to stop before the time is over."""


@dataclass(frozen=True, slots=True)
class Do:
    act: Act
    seconds: float = 0.0
    attempt: int = 1


Flow = Generator[Do, Any, Any]

_NOT_FOUND = object()


class Attempts:
    """The attempts at one call within one turn."""

    def __init__(self, spec: Spec, ledger: Ledger, call: Call) -> None:
        self.spec = spec
        self.ledger = ledger
        self.call = call
        self.tries = Tries(spec.retry)
        # Nothing has been sent for this request id, as far as anybody can know.
        self.untouched = False
        self.attempts = 0

    def run(self) -> Flow:
        """The whole call; returns its result as nodes see it."""
        if known := self.ledger.known(self.call):
            return self._replay(*known)
        yield Do(Act.YIELD)
        self.ledger.require_alone(self.call)
        failpoint("effect.before_intent", self._place)
        # Only resend calls again without looking: the others leave the old start alone.
        recorded = self._intend(again=self.spec.policy == "resend")
        failpoint("effect.after_intent", self._place)
        if recorded.state not in ("new", "intent"):
            return self._finished(recorded)
        self.untouched = recorded.state == "new"
        if recorded.state == "intent":
            found = yield from self._settle_doubt(recorded)
            if found is not _NOT_FOUND:
                return self._done(found)
        return (yield from self._call_until_done())

    # Before the call

    def _intend(self, again: bool) -> Recorded:
        recorded = self.ledger.intend(self.call, self.spec.policy, again)
        self.attempts = recorded.attempts
        if recorded.state == "busy":
            raise RetryLater(
                random.uniform(0.2, 1.0), f"{self._name()} is being called by another thread", False
            )
        self._same_arguments(recorded.args_hash)
        return recorded

    def _finished(self, recorded: Recorded) -> Any:
        state: Any = recorded.state
        call = self.call
        metrics.effect(self.spec.policy, "replayed")
        result = Result(
            call.request_id, state, recorded.result, recorded.error, recorded.attempts, None
        )
        self.ledger.remember(call, result)
        return self._outcome(result)

    def _settle_doubt(self, recorded: Recorded) -> Flow:
        """Begun before and no result. Returns a found result, or _NOT_FOUND to call again."""
        spec = self.spec
        if spec.policy == "resend":
            self._within_ttl(recorded)
            return _NOT_FOUND
        if spec.policy == "lookup":
            found = yield from self._look_up()
            if found is not _NOT_FOUND:
                return found
        if recorded.age < spec.settle:
            wait = spec.settle - recorded.age
            raise RetryLater(
                wait, f"{self._name()} began {recorded.age:.1f} s ago and may be under way", False
            )
        if spec.policy == "park":
            raise self._in_doubt(f"it began {recorded.age:.0f} s ago and no result was recorded")
        # The call that follows is stamped: the next doubt is about its age.
        self._intend(again=True)
        return _NOT_FOUND

    def _within_ttl(self, recorded: Recorded) -> None:
        if recorded.state == "intent" and recorded.first_age > self.spec.key_ttl:
            raise self._in_doubt(
                f"it was first sent {recorded.first_age:.0f} s ago and its request id is honoured "
                f"for {self.spec.key_ttl:.0f} s"
            )

    def _look_up(self) -> Flow:
        failpoint("effect.before_lookup", self._place)
        try:
            found = yield Do(Act.LOOK_UP)
        except Exception as exc:
            raise RetryLater(
                faults.retry_after(exc),
                f"lookup of {self._name()} failed: {faults.describe(exc)}",
                True,
            ) from exc
        failpoint("effect.after_lookup", self._place)
        if isinstance(found, Found):
            return found.value
        return _NOT_FOUND if found is None else found

    # The call

    def _call_until_done(self) -> Flow:
        while True:
            self.ledger.ready()
            failpoint("effect.before_call", self._place)
            started = time.monotonic()
            try:
                value = yield Do(Act.CALL, attempt=self.attempts)
            except Exception as exc:
                found = yield from self._failed(exc, time.monotonic() - started)
                if found is not _NOT_FOUND:
                    return self._done(found)
            else:
                failpoint("effect.after_call", self._place)
                return self._done(value)

    def _failed(self, exc: Exception, took: float) -> Flow:
        """After a failed call. Returns a found result, or _NOT_FOUND to call again."""
        policy = self.spec.policy
        verdict = faults.classify(exc, policy)
        if verdict == "permanent":
            error = {"status": faults.status_of(exc), "detail": faults.describe(exc)}
            self._record(Result(self.call.request_id, "failed", None, error, *self._tail()), True)
            raise self._error(EffectFailed, error) from exc
        self.untouched = self.untouched and verdict == "never_sent"
        if verdict == "never_sent" or (verdict == "transient" and policy == "resend"):
            yield from self._again(exc)
            return _NOT_FOUND
        if policy == "resend":
            raise exc
        log.warning("%s: %s", self._name(), faults.describe(exc))
        return (yield from self._doubt_now(exc, took))

    def _doubt_now(self, exc: Exception, took: float) -> Flow:
        """The call that just failed may have happened (lookup, park)."""
        rest = self.spec.settle - took
        reason = f"{self._name()}: {faults.describe(exc)}"
        if self.spec.policy == "lookup":
            found = yield from self._look_up()
            if found is not _NOT_FOUND:
                return found
            wait = max(rest, faults.retry_after(exc) or 0.0)
            raise RetryLater(wait if wait > 0 else None, reason, True) from exc
        if rest > 0:
            # It may still arrive: the replay after that finds the intent and parks.
            raise RetryLater(rest, reason, False) from exc
        raise self._in_doubt(faults.describe(exc)) from exc

    def _again(self, exc: Exception) -> Flow:
        """Wait for the next attempt, or give the slot back."""
        wait = self.tries.wait(exc)
        stopping = wait is not None and (yield Do(Act.PAUSE, seconds=wait))
        if wait is not None and not stopping:
            self._within_ttl(self._intend(again=True))
            return
        if self.untouched:
            forgotten = Result(self.call.request_id, "forgotten", None, None, *self._tail())
            self._record(forgotten, self.spec.policy != "resend")
        reason = f"{self._name()}: {faults.describe(exc)}"
        raise RetryLater(faults.retry_after(exc), reason, counted=not stopping) from exc

    # After the call

    def _done(self, value: Any) -> Any:
        spec = self.spec
        try:
            stored, given = spec.codec.encode(value)
        except Unstorable as exc:
            error = {"status": None, "detail": f"its result can't be stored: {exc}"[:500]}
            self._record(
                Result(self.call.request_id, "unstorable", None, error, *self._tail()), True
            )
            raise self._error(ResultUnstorable, error) from exc
        result = Result(self.call.request_id, "done", stored, None, *self._tail())
        self._record(result, at_once=spec.at_once or spec.policy != "resend")
        failpoint("effect.after_result", self._place)
        return given

    def _record(self, result: Result, at_once: bool) -> None:
        self.ledger.record(self.call, result, at_once)
        metrics.effect(self.spec.policy, result.state)

    def _replay(self, args_hash: str, result: Result) -> Any:
        self._same_arguments(args_hash)
        return self._outcome(result)

    def _outcome(self, result: Result) -> Any:
        """A recorded result, given or raised again."""
        if result.state == "failed":
            raise self._error(EffectFailed, result.error)
        if result.state == "unstorable":
            raise self._error(ResultUnstorable, result.error)
        try:
            return self.spec.codec.decode(result.result or ("null", b""))
        except Unstorable as exc:
            raise self._error(ResultUnstorable, {"detail": f"its result: {exc}"}) from exc

    # Small things

    def _tail(self) -> tuple[int, str | None]:
        return self.attempts, self.call.effect_key

    def _same_arguments(self, args_hash: str | None) -> None:
        if args_hash is not None and args_hash != self.call.args_hash:
            raise EffectArgumentsChanged(
                f"{self._name()} was called with other arguments before: what it is given must be "
                "the same at each replay"
            )

    def _error(self, kind: type[EffectFailed], error: dict[str, Any] | None) -> EffectFailed:
        said = {"detail": "no detail was recorded", **(error or {})}
        return kind(self.call.name, self.call.request_id, said.get("status"), str(said["detail"]))

    def _in_doubt(self, reason: str) -> InDoubt:
        metrics.effect(self.spec.policy, "in_doubt")
        return InDoubt(self.call.request_id, self.call.name, reason)

    def _place(self) -> str:
        return self.ledger.place(self.call)

    def _name(self) -> str:
        return f"effect {self.call.name} ({self.call.request_id})"
