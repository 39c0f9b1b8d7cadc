"""Named points in the code at which tests and `fleet chaos` make a process fail.

    FLEET_FAILPOINTS="effect.after_call=kill:0.1;claim.after_lock=sleep:2"

Each entry is `name=action[:arg][:probability[:count]]`, entries parted by `;` or in lines
of their own; `@FILE` reads them from a file. docs/reliability.md lists the names.

    kill          SIGKILL to this process      stop:SECONDS   SIGSTOP to this process, and
    exit:CODE     leave without any cleanup                   SIGCONT after that time
    sleep:SECONDS                              raise          FailpointError
    note          a line in the log, no more   disconnect     call the handler of `on_disconnect`

Only `exit` (1 if left out), `sleep` and `stop` (somebody else resumes it if left out) take
an argument; for the others it may be left empty (`kill::0.1` is `kill:0.1`). The probability
is 1 and the count, which is per process, without limit unless given. A point is met at
places (a message's step, an effect's call), which are the same at each attempt:

    turn.superstep=kill          wherever it is met
    turn.superstep@=kill         at each place: each is a point of its own, `name@PLACE`
    turn.superstep@PLACE=kill    at this place only; PLACE is percent-quoted, as in the log

Two more settings help to watch it:

    FLEET_FAILPOINT_LOG=FILE   a line `pid name action` per hit, fsynced before the action
    FLEET_FAILPOINT_ONCE=DIR   each point acts once over all processes, or as often as its
                               count says, so that the attempt after a kill does not die again
"""

import hashlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from infra.errors import SettingsError

ACTIONS = ("kill", "exit", "stop", "raise", "sleep", "disconnect", "note")
_WITH_ARGUMENT = ("exit", "sleep", "stop")
#: A file name holds 255 bytes; a place may be longer.
_LONGEST_NAME = 200


class FailpointError(Exception):
    """Raised by the action `raise`."""


@dataclass(slots=True)
class _Point:
    action: str
    arg: float
    probability: float
    left: int | None


_points: dict[str, _Point] = {}
#: Points that are armed by place.
_placed: frozenset[str] = frozenset()
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

    `place` tells where the point is met; asked only where `name` is armed by place.
    """
    points = _points if _loaded else _load()
    if not points:
        return
    if (point := points.get(name)) is not None:
        _hit(name, point)
    if place is not None and name in _placed:
        here = f"{name}@{quote(place(), safe='')}"
        if (point := points.get(here) or points.get(f"{name}@")) is not None:
            _hit(here, point)


def arm(spec: str, *, log: Path | None = None, once: Path | None = None) -> None:
    """Replace what is armed in this process; an empty spec disarms. Raises SettingsError."""
    global _points, _placed, _loaded, _log, _once
    points = parse(spec)
    _points, _log, _once = points, log, once
    _placed = frozenset(name.partition("@")[0] for name in points if "@" in name)
    _loaded = True


def on_disconnect(handler: Callable[[], None] | None) -> None:
    """Register what `disconnect` calls: in this context, and as the default of the process."""
    global _last_handler
    _handler.set(handler)
    _last_handler = handler


def parse(spec: str) -> dict[str, _Point]:
    """Read a spec as in the module's docstring; raises SettingsError naming the entry."""
    points: dict[str, _Point] = {}
    entries = (part.strip() for line in _text(spec).splitlines() for part in line.split(";"))
    for entry in filter(None, entries):
        name, equals, rest = entry.partition("=")
        action, *params = rest.strip().split(":")
        if not (name.strip() and equals and action in ACTIONS):
            raise _refuse(entry, f"the action is one of {', '.join(ACTIONS)}")
        _, _, where = name.strip().partition("@")
        if quote(unquote(where), safe="") != where:
            raise _refuse(entry, "a place is percent-quoted, as the log has it")
        if action not in _WITH_ARGUMENT and params[:1] != [""]:
            params.insert(0, "")
        points[name.strip()] = _point(entry, action, params)
    return points


def _text(spec: str) -> str:
    """The entries: the spec itself, or what the file that it names holds."""
    if not spec.startswith("@"):
        return spec
    try:
        return Path(spec[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not UTF-8"
        raise SettingsError(
            f"FLEET_FAILPOINTS names the file {spec[1:]!r}, which cannot be read: {reason}.",
            "Name a file with one entry per line, or give the entries themselves.",
        ) from None


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
    if more or not 0 <= point.probability <= 1 or point.arg < 0:
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
        if not _counted(name, point):
            return
        if _log is not None:
            _append(_log, f"{os.getpid()} {name} {point.action}\n")
    _act(name, point)


def _counted(name: str, point: _Point) -> bool:
    """Whether this hit is among those that act."""
    if _once is not None:
        times = 1 if point.left is None else point.left
        return any(_first(f"{name}.{n}" if n > 1 else name) for n in range(1, times + 1))
    if point.left == 0:
        return False
    if point.left is not None:
        point.left -= 1
    return True


def _first(name: str) -> bool:
    """Whether this is the first time, over all processes, that it is asked of this name."""
    assert _once is not None
    _once.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(_once / mark(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def mark(name: str) -> str:
    """The file that a point leaves in the folder FLEET_FAILPOINT_ONCE, just before it acts."""
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 41]}.{hashlib.sha1(name.encode()).hexdigest()}"


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
        case "note":
            pass
        case "stop":
            if point.arg:
                _resume_after(point.arg)
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


def _resume_after(seconds: float) -> None:
    """SIGCONT to this process after so long, by one that is no child of ours."""
    script = '(sleep "$1"; kill -CONT "$2") </dev/null >/dev/null 2>&1 &'
    subprocess.run(
        ["/bin/sh", "-c", script, "sh", str(seconds), str(os.getpid())],
        start_new_session=True,
        check=True,
    )
