"""Drain: serve the thread that a wake-up names, then whatever mail is due.

A wake-up that found its thread busy is never lost: the holder looks for more mail of that
thread in the transaction that ends its turn, and before a task returns, due mail is
taken straight from Postgres: of the wake-up's queue first, then of the worker's others. So
under load the broker's cost is paid once for many turns.
"""

import logging
import time
from functools import partial
from typing import Any

from infra import metrics
from infra.failpoints import failpoint
from infra.telemetry import bound
from producers.wakeup import publish_many
from workers import shutdown
from workers.claimed import Claimed
from workers.gate import gate
from workers.outcomes import Kind
from workers.rejects import set_aside
from workers.slot import Slot
from workers.turn import Turn

log = logging.getLogger("fleet.drain")

#: Seconds that a task may go on for although it has done its turns: short turns are many
#: to a task, since the way from one task to the next costs some milliseconds.
_AT_LEAST = 1.0
#: Seconds after which it ends although it has done few: one who waits on the broker, as for
#: the turn of a lost worker, is not to wait for twenty long turns.
_AT_MOST = 5.0


class _Budget:
    """How many turns one task may take."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._begun = time.monotonic()

    def spent(self, done: int) -> bool:
        took = time.monotonic() - self._begun
        enough = took >= _AT_MOST or (done >= self._turns and took >= _AT_LEAST)
        return shutdown.requested() or enough


def drain(slot: Slot, thread_id: str) -> list[dict[str, Any]]:
    """Run turns until no mail is due, or ``turns_per_task`` are done and a second is over, or
    five are.

    Gives ``{"thread_id", "seq", "epoch", "outcome"}`` of each, in order: the task's return
    value, which Flower shows.
    """
    done: list[dict[str, Any]] = []
    budget = _Budget(slot.settings.turns_per_task)
    _wait_for_gate()
    claimed = slot.claim(thread_id)
    if claimed.result == "unknown":
        set_aside(f"there is no thread {thread_id}: a wake-up never starts one", thread_id)
    if claimed.result != "claimed":
        claimed = slot.claim_next()
    while claimed.result == "claimed":
        following = _serve(slot, claimed, done, last=budget.spent(len(done) + 1))
        failpoint("drain.before_next", partial(_place, done))
        if following is None and budget.spent(len(done)):
            break
        # The last look comes after the last commit: mail that came in between is seen.
        claimed = following or _claim_next(slot)
    if budget.spent(len(done)):
        failpoint("drain.before_hand_over", partial(_place, done))
        _hand_over(slot, done)
    return done


def _place(done: list[dict[str, Any]]) -> str:
    """Where a failpoint is met: the message of the last turn."""
    return f"{done[-1]['thread_id']}/{done[-1]['seq']}" if done else ""


def _claim_next(slot: Slot) -> Claimed:
    _wait_for_gate()
    return slot.claim_next()


def _wait_for_gate() -> None:
    """Claim nothing while a message of this process is, or waits to be, alone."""
    while not gate.wait() and not shutdown.requested():
        pass


def _serve(slot: Slot, claimed: Claimed, done: list[dict[str, Any]], last: bool) -> Claimed | None:
    # Also of what the end of the turn before has claimed.
    failpoint("claim.after_commit", claimed.place)
    slot.tenant = claimed.tenant
    turn = Turn(slot, claimed)
    started = time.monotonic()
    with bound(claimed.thread_id, claimed.message_id, claimed.epoch):
        following = turn.run(None if last else slot.following())
        log.info(
            "turn of %s: message %s, epoch %s, %s",
            claimed.thread_id,
            claimed.message_id,
            claimed.epoch,
            turn.outcome.kind,
        )
    metrics.turn(claimed.graph, str(turn.outcome.kind), time.monotonic() - started)
    done.append(
        {
            "thread_id": claimed.thread_id,
            "seq": claimed.seq,
            "epoch": claimed.epoch,
            "outcome": str(turn.outcome.kind),
        }
    )
    return following


def _hand_over(slot: Slot, done: list[dict[str, Any]]) -> None:
    """Wake somebody else when this task stops with mail left."""
    if not done or (done[-1]["outcome"] == Kind.LOST):
        return
    if (wake := slot.due()) is not None:
        publish_many(slot.broker, [wake])
