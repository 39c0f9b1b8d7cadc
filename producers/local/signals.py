"""How a command that owns other processes is ended: in order, whichever signal asks."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

#: What a block under `ending_on_signals` is left with; SIGINT is KeyboardInterrupt.
STOPPED = (KeyboardInterrupt, SystemExit)


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


def _leave(number: int, _: Any) -> NoReturn:
    raise SystemExit(128 + number)
