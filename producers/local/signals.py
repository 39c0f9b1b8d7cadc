"""How a command that owns other processes is ended: in order, whichever signal asks."""

import contextlib
import signal
from collections.abc import Iterator
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


def _leave(number: int, _: Any) -> NoReturn:
    raise SystemExit(128 + number)
