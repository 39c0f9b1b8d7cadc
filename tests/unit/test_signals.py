"""A command that is asked to end does, wherever the signal finds it."""

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable

import pytest

from producers.local.signals import ending_on_signals, insisting

ENDING = [
    (signal.SIGINT, KeyboardInterrupt),
    (signal.SIGTERM, SystemExit),
    (signal.SIGHUP, SystemExit),
]


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


@pytest.mark.parametrize(("number", "raised"), ENDING)
def test_one_that_is_dropped_just_before_the_end(
    number: signal.Signals, raised: type[BaseException]
) -> None:
    """It ends the block as asked, and nothing comes afterwards."""
    with pytest.raises(raised) as stopped, insisting(), ending_on_signals():
        _in_a_finalizer(lambda: os.kill(os.getpid(), number))
    if raised is SystemExit:
        assert stopped.value.code == 128 + number
    threading.Event().wait(0.1)


def test_what_another_thread_drops_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported, and no signal of ours."""
    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_type))

    def interrupted() -> None:
        raise KeyboardInterrupt

    with insisting():
        other = threading.Thread(target=lambda: _in_a_finalizer(interrupted))
        other.start()
        other.join(10)
        threading.Event().wait(0.1)
    assert reported == [KeyboardInterrupt]


def test_other_exceptions_that_python_drops_are_reported_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As finalizers fail."""
    reported: list[BaseException] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_value))

    def fails() -> None:
        raise ValueError("of a finalizer")

    with insisting():
        _in_a_finalizer(fails)
    assert [str(error) for error in reported] == ["of a finalizer"]
