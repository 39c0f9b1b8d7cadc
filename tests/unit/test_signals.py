"""A command that is asked to end does, wherever the signal finds it."""

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from producers.local.signals import ending_on_signals, insisting

ENDING = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]


class _Finalized:
    """An object whose finalizer is where a signal arrives."""

    def __init__(self, finalize: Callable[[], None]) -> None:
        self._finalize = finalize

    def __del__(self) -> None:
        self._finalize()


def _in_a_finalizer(arrives: Callable[[], None]) -> None:
    _Finalized(arrives)


def _in_a_callback(arrives: Callable[[], None]) -> None:
    class Plain: ...

    plain = Plain()
    kept = weakref.ref(plain, lambda _: arrives())
    del plain
    assert kept() is None


@pytest.mark.parametrize("place", [_in_a_finalizer, _in_a_callback])
@pytest.mark.parametrize(("number", "raised"), ENDING)
def test_a_signal_that_python_drops_is_given_again(
    number: signal.Signals,
    raised: type[BaseException],
    place: Callable[[Callable[[], None]], None],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Also twice in a row; nothing of it is shown."""
    never, went_on = threading.Event(), []
    with insisting(), ending_on_signals(), pytest.raises(raised):
        place(lambda: os.kill(os.getpid(), number))
        went_on.append("after the signal")
        place(lambda: never.wait(20) and None)
        went_on.append("after it was given again")
        never.wait(20)
    assert len(went_on) == 2
    assert capfd.readouterr() == ("", "")


def test_other_exceptions_that_python_drops_are_reported_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And no alarm of anybody's is touched."""
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_value))
    alarm = signal.getsignal(signal.SIGALRM)

    def fails() -> None:
        raise ValueError("of a finalizer")

    with insisting():
        _in_a_finalizer(fails)
        assert signal.getsignal(signal.SIGALRM) is alarm
    assert [str(error) for error in reported] == ["of a finalizer"]
