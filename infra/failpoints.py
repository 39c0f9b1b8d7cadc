"""Named points in the code at which tests and `fleet chaos` make a process fail.

    FLEET_FAILPOINTS="effect.after_call=kill:0.1;claim.after_lock=sleep:2"

Each entry is `name=action[:arg][:probability[:count]]`, entries parted by `;`:

    kill         SIGKILL to this process       stop        SIGSTOP to this process
    exit:CODE    leave without any cleanup     raise       FailpointError
    sleep:SECONDS                              disconnect  call the handler of `on_disconnect`

Only `exit` (1 if left out) and `sleep` take an argument; for the others it may be
left empty (`kill::0.1` is `kill:0.1`). The probability is 1 and the count, which
is per process, without limit unless given. A name with `@` behind it (`turn.superstep@=kill`)
stands for each place that the point tells apart (threads, supersteps): each is a point of
its own, `name@place`. Two more settings help to watch it:

    FLEET_FAILPOINT_LOG=FILE   a line `pid name action` per hit, fsynced before the action
    FLEET_FAILPOINT_ONCE=DIR   each point acts once over all processes, so that the
                               attempt after a kill does not die again
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from infra.errors import SettingsError

ACTIONS = ("kill", "exit", "stop", "raise", "sleep", "disconnect")


class FailpointError(Exception):
    """Raised by the action `raise`."""


@dataclass(slots=True)
class _Point:
    action: str
    arg: float
    probability: float
    left: int | None


_points: dict[str, _Point] = {}
_loaded = False
_lock = threading.Lock()
_log: Path | None = None
_once: Path | None = None
# Not the module's own generator: forked workers share its state and would agree.
_random = random.SystemRandom()
_handler: ContextVar[Callable[[], None] | None] = ContextVar("on_disconnect", default=None)
_last_handler: Callable[[], None] | None = None


def failpoint(name: str, place: Callable[[], str] | None = None) -> None:
    """Do what `name` is armed with; nothing, at the cost of two look-ups, when it is not.

    `place` tells apart where the point is met; asked only where `name@` is armed.
    """
    points = _points if _loaded else _load()
    if not points:
        return
    if (point := points.get(name)) is not None:
        _hit(name, point)
    if place is not None and (point := points.get(f"{name}@")) is not None:
        _hit(f"{name}@{quote(place(), safe='')}", point)


def arm(spec: str, *, log: Path | None = None, once: Path | None = None) -> None:
    """Replace what is armed in this process; an empty spec disarms. Raises SettingsError."""
    global _points, _loaded, _log, _once
    _points, _log, _once, _loaded = parse(spec), log, once, True


def on_disconnect(handler: Callable[[], None] | None) -> None:
    """Register what `disconnect` calls: in this context, and as the default of the process."""
    global _last_handler
    _handler.set(handler)
    _last_handler = handler


def parse(spec: str) -> dict[str, _Point]:
    """Read a spec as in the module's docstring; raises SettingsError naming the entry."""
    points: dict[str, _Point] = {}
    for entry in filter(None, (part.strip() for part in spec.split(";"))):
        name, equals, rest = entry.partition("=")
        action, *params = rest.strip().split(":")
        if not (name.strip() and equals and action in ACTIONS):
            raise _refuse(entry, f"the action is one of {', '.join(ACTIONS)}")
        if action not in ("exit", "sleep") and params[:1] != [""]:
            params.insert(0, "")
        points[name.strip()] = _point(entry, action, params)
    return points


def _point(entry: str, action: str, params: list[str]) -> _Point:
    arg, probability, count, *more = [*params, *[""] * (3 - len(params))]
    try:
        point = _Point(
            action,
            float(arg) if arg else float(action == "exit"),
            float(probability) if probability else 1.0,
            int(count) if count else None,
        )
    except ValueError:
        raise _refuse(entry, "argument, probability and count are numbers") from None
    if more or not 0 <= point.probability <= 1:
        raise _refuse(entry, "a probability, from 0 to 1, and a count may follow")
    return point


def _refuse(entry: str, why: str) -> SettingsError:
    return SettingsError(
        f"FLEET_FAILPOINTS has the entry {entry!r}, which cannot be read: {why}.",
        "Write it as name=action[:arg][:probability[:count]].",
    )


def _load() -> dict[str, _Point]:
    from infra.settings import get_settings

    settings = get_settings()
    arm(settings.failpoints, log=settings.failpoint_log, once=settings.failpoint_once)
    return _points


def _hit(name: str, point: _Point) -> None:
    if point.probability < 1 and _random.random() >= point.probability:
        return
    with _lock:
        if point.left == 0 or not _first(name):
            return
        if point.left is not None:
            point.left -= 1
        if _log is not None:
            _append(_log, f"{os.getpid()} {name} {point.action}\n")
    _act(name, point)


def _first(name: str) -> bool:
    """Whether this is the first hit of all processes, where only that one counts."""
    if _once is None:
        return True
    _once.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(_once / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _append(path: Path, line: str) -> None:
    fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
    try:
        os.write(fd, line.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def _act(name: str, point: _Point) -> None:
    match point.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(int(point.arg))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "sleep":
            time.sleep(point.arg)
        case "disconnect":
            handler = _handler.get() or _last_handler
            if handler is None:
                raise FailpointError(f"{name}: disconnect, and no handler is registered")
            handler()
        case _:
            raise FailpointError(name)
