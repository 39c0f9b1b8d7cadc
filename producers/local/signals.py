"""How a command that owns other processes is ended: in order, whichever signal asks."""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

#: What a block under `ending_on_signals` is left with; SIGINT is KeyboardInterrupt.
STOPPED = (KeyboardInterrupt, SystemExit)
#: Seconds until a signal is given again.
_MOMENT = 0.01


@contextlib.contextmanager
def ending_on_signals() -> Iterator[None]:
    """Let SIGTERM and a closed terminal unwind the block, as Ctrl-C does.

    They raise SystemExit with the shell's exit code for them, 128 + the signal's number.
    A signal that is ignored (nohup) stays so.
    """
    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, _leave)
    try:
        yield
        # By our handlers, which are about to go.
        _dropped.give_now()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def noting_an_interrupt() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed in the block, which is not left for it but looks now and then.

    The second one unwinds the block. So does the first where it can't be noted: outside of the
    main thread, or where SIGINT is ignored or somebody else's.
    """
    noted = threading.Event()
    usual = signal.default_int_handler

    def note(*_: Any) -> None:
        noted.set()
        signal.signal(signal.SIGINT, usual)

    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not usual:
        yield noted.is_set
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield noted.is_set
    finally:
        signal.signal(signal.SIGINT, usual)


@contextlib.contextmanager
def insisting() -> Iterator[None]:
    """Let a signal that is to end the block end it wherever it finds the main thread.

    What its handler raises inside of a finalizer or a callback of the garbage collector, Python
    reports to `sys.unraisablehook` and drops: the block would go on as if nobody had asked. The
    signal is given again instead, a moment later, or where the block ends.
    """
    before, main = sys.unraisablehook, threading.main_thread().ident

    def hook(unraisable: Any) -> None:
        number = _signal_of(unraisable.exc_value)
        if number is None or main is None or threading.get_ident() != main:
            before(unraisable)
            return
        _dropped.number = number
        # Not a Thread: who was interrupted may hold the locks of that module.
        _thread.start_new_thread(_dropped.give_again, (main,))

    sys.unraisablehook = hook
    try:
        yield
        _dropped.give_now()
    finally:
        _dropped.forget()
        sys.unraisablehook = before


class _Dropped:
    """A signal whose exception Python has dropped, until it is given again."""

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._lock = _thread.allocate_lock()

    def give_again(self, thread: int) -> None:
        """To that thread, in a moment. Called in one of its own."""
        time.sleep(_MOMENT)
        with self._lock:
            number, self.number = self.number, None
            if number is not None:
                signal.pthread_kill(thread, number)

    def give_now(self) -> None:
        with self._lock:
            number, self.number = self.number, None
        if number is not None:
            signal.raise_signal(number)

    def forget(self) -> None:
        with self._lock:
            self.number = None


_dropped = _Dropped()


def _signal_of(raised: BaseException | None) -> signal.Signals | None:
    """Which signal's handler raised this."""
    if isinstance(raised, KeyboardInterrupt):
        return signal.SIGINT
    return raised.number if isinstance(raised, _Left) else None


class _Left(SystemExit):
    def __init__(self, number: signal.Signals) -> None:
        super().__init__(128 + number)
        self.number = number


def _leave(number: int, _: Any) -> NoReturn:
    raise _Left(signal.Signals(number))
