"""The closed set of outcomes, and what each writes."""

import random

import pytest

from workers.outcomes import Kind, Outcome, backoff, end, give_up


@pytest.mark.parametrize(
    ("kind", "message", "thread"),
    [
        (Kind.DONE, "done", "done"),
        (Kind.WAITING, "done", "waiting"),
        (Kind.IN_DOUBT, "in_doubt", "in_doubt"),
        (Kind.RETRY, "pending", "idle"),
        (Kind.RELEASED, "pending", "idle"),
        (Kind.DEAD, "dead", "failed"),
        (Kind.INCOMPATIBLE, "pending", "incompatible"),
        (Kind.CANCELLED, "pending", "idle"),
        (Kind.DRAINED, "pending", "idle"),
    ],
)
def test_each_outcome_has_its_statuses(kind: Kind, message: str, thread: str) -> None:
    """Every outcome but 'lost' says what becomes of the message and of the thread."""
    written = end(Outcome(kind), 7, 0.0)
    assert (written["seq"], written["message"], written["thread"]) == (7, message, thread)


def test_lost_writes_no_end() -> None:
    """A lost turn has no end to write: asking for one is a mistake of ours."""
    with pytest.raises(KeyError):
        end(Outcome(Kind.LOST), 1, 0.0)


def test_only_a_retry_counts_a_failure() -> None:
    """Clean releases are free."""
    counted = [k for k in Kind if k is not Kind.LOST and end(Outcome(k), 1, 0.0)["failed"]]
    assert counted == [Kind.RETRY]


def test_only_finished_turns_ask() -> None:
    """Questions are replaced when a turn ended done or waiting, and left alone otherwise."""
    asking = [k for k in Kind if k is not Kind.LOST and "questions" in end(Outcome(k), 1, 0.0)]
    assert asking == [Kind.DONE, Kind.WAITING]


def test_backoff_has_full_jitter_under_its_ceiling() -> None:
    """Between 0 and base * 2**failures, never past the ceiling, at any count."""
    rng = random.Random(1)
    for failures in (0, 1, 5, 20, 2000):
        waits = [backoff(failures, 1.0, 300.0, rng) for _ in range(200)]
        assert min(waits) >= 0 and max(waits) <= min(300.0, 2.0 ** min(failures, 32))


def test_failures_are_given_up_by_time() -> None:
    """A retry that has failed for longer than the limit is dead, with its last reason."""
    retry = Outcome(Kind.RETRY, "shop down")
    assert give_up(retry, 3599, 3600) is retry
    assert give_up(retry, None, 3600) is retry
    dead = give_up(retry, 3600, 3600)
    assert dead.kind is Kind.DEAD and "shop down" in (dead.error or "")


def test_other_outcomes_are_not_given_up() -> None:
    """Waiting for a person has no time limit of this kind."""
    waiting = Outcome(Kind.WAITING)
    assert give_up(waiting, 10**9, 1) is waiting


def test_an_error_is_masked_where_it_becomes_a_row() -> None:
    """Whatever an exception said about a person, tables and pages show it masked."""
    written = end(Outcome(Kind.DEAD, "no account of li@example.com"), 1, 0.0)
    assert written["error"] == "no account of l***@example.com"
