"""What a process does about threads that it has left to another release."""

from infra.settings import Settings
from workers.leftovers import Leftovers

SETTINGS = Settings(redelivery_after=2.0, backoff_max=10.0)


def test_a_wake_up_is_handed_on_once_for_each_time_that_the_thread_was_left() -> None:
    """So it goes round all workers, and stops when all have looked."""
    left = Leftovers()
    assert not left.hand_on("a")
    left.leave("a", SETTINGS)
    assert left.hand_on("a") and not left.hand_on("a") and not left.hand_on("b")
    left.leave("a", SETTINGS)
    assert left.hand_on("a")


def test_a_thread_is_looked_at_again_at_growing_intervals() -> None:
    """Up to the longest backoff."""
    left = Leftovers()
    assert [left.leave("a", SETTINGS) for _ in range(5)] == [2.0, 4.0, 8.0, 10.0, 10.0]


def test_the_intervals_begin_anew_when_a_worker_starts() -> None:
    """However often the thread was left before: the new one may be able to serve it."""
    left = Leftovers()
    for _ in range(5):
        left.leave("a", SETTINGS)
    assert [left.leave("a", SETTINGS, newest) for newest in (0.1, 5.0, 60.0)] == [2.0, 5.0, 10.0]
