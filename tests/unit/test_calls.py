"""How often one thread is seen to."""

from workers.calls import Calls


def test_intervals_double_up_to_a_minute() -> None:
    """1, 2, 4 … seconds between two calls of the same thread; forgotten when it is fine."""
    calls, at = Calls(1.0), []
    for t in range(400):
        if calls.allowed("A", float(t)):
            calls.note("A", float(t))
            at.append(t)
    assert at == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]
    calls.keep(set())
    assert calls.allowed("A", 400.0)


def test_the_longest_interval_may_be_shorter() -> None:
    """As for the turns of lost workers: a wake-up that was lost too costs seconds."""
    calls, at = Calls(1.0, longest=5.0), []
    for t in range(24):
        if calls.allowed("A", float(t)):
            calls.note("A", float(t))
            at.append(t)
    assert at == [0, 1, 3, 7, 12, 17, 22]


def test_asking_changes_nothing() -> None:
    """Only a call that was made puts the next one off."""
    calls = Calls(1.0)
    assert all(calls.allowed("A", t / 10) for t in range(100))
    calls.note("A", 10.0)
    assert not calls.allowed("A", 10.9) and calls.allowed("A", 11.0)
