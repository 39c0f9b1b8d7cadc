"""The process that owns all others of a stack, and ends them when its parent dies.

Run by file name, with the standard library only, in a session of its own so that
Ctrl-C in the terminal reaches the parent alone. It reads requests from stdin, one JSON
object a line, and answers each on stdout. EOF on stdin means that the parent is gone,
by SIGKILL too: then everything is ended within a second. The lock of the data folder is
a file descriptor that this process holds until all of that is done.

    {"op": "spawn", "argv", "env", "cwd", "log", "user": [uid, gid] | null,
     "stop": [signal names], "server": bool}           -> {"pid"} or {"error"}
    {"op": "poll", "pid"}                              -> {"code": int | null}
    {"op": "signal", "pid", "signal", "group": bool}   -> {"sent": bool}
    {"op": "stop", "grace": seconds}                   -> {}, and this process ends

Each request has an "id", which its answer repeats. At the end, children that are no
servers go first; each child gets the signals of its "stop" one after the other, a grace
apart, then SIGKILL to its whole group.
"""

import argparse
import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

#: Seconds between asking and insisting once the parent is dead.
ORPHAN_GRACE = 0.3
TICK = 0.2

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Process(Protocol):
    """A started process, as subprocess.Popen is one."""

    pid: int

    def poll(self) -> int | None: ...


class _Child:
    """A child in a process group of its own, whose number is its pid."""

    def __init__(self, process: Process, request: dict[str, Any]) -> None:
        self.process = process
        self.stop = [signal.Signals[name] for name in request["stop"]]
        self.server = bool(request["server"])
        self.group_gone = False

    def code(self) -> int | None:
        """The leader's exit code. Also notes when its group is empty.

        From then on the number may be given to others, so it is never signalled again.
        """
        code = self.process.poll()
        if code is not None and not self.group_gone:
            try:
                # What the leader left behind became ours, see `_adopt_orphans`.
                while os.waitpid(-self.process.pid, os.WNOHANG) != (0, 0):
                    pass
            except ChildProcessError:
                pass
            try:
                os.killpg(self.process.pid, 0)
            except OSError:
                self.group_gone = True
        return code

    def gone(self) -> bool:
        return self.code() is not None and self.group_gone

    def send(self, number: int, *, group: bool) -> bool:
        code = self.code()
        if self.group_gone or (code is not None and not group):
            return False
        try:
            (os.killpg if group else os.kill)(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


class Guard:
    """Answers requests until there are no more, then ends all children."""

    def __init__(self, delete: str | None, unlink: str | None) -> None:
        self._children: dict[int, _Child] = {}
        self._parent = os.getppid()
        self._orphaned = False
        self._delete = delete
        self._unlink = unlink
        self._input = b""

    def run(self) -> None:
        grace = ORPHAN_GRACE
        stop: dict[str, Any] | None = None
        while stop is None and not self._orphaned:
            request = self._next(TICK)
            for child in self._children.values():
                child.code()
            if request is not None and request["op"] == "stop":
                grace, stop = max(float(request["grace"]), ORPHAN_GRACE), request
            elif request is not None:
                self._answer(request, self._do(request))
        self._end_all(grace)
        if stop is not None and not self._orphaned:
            self._answer(stop, {})

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] == "spawn":
            return self._spawn(request)
        child = self._children[request["pid"]]
        if request["op"] == "poll":
            return {"code": child.code()}
        return {"sent": child.send(signal.Signals[request["signal"]], group=request["group"])}

    def _spawn(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            with open(request["log"], "ab") as log:
                process = self.start(request, log.fileno())
        except (OSError, ValueError, subprocess.SubprocessError) as exc:
            return {"error": str(exc)}
        self._children[process.pid] = _Child(process, request)
        return {"pid": process.pid}

    def start(self, request: dict[str, Any], log: int) -> Process:
        """Start what a request asks for; log: a file descriptor."""
        user, group = request["user"] or (None, None)
        last = signal.Signals[request["stop"][-1] if request["server"] else "SIGKILL"]
        return subprocess.Popen(
            request["argv"],
            env=request["env"],
            cwd=request["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=None if user is None else [],
            preexec_fn=die_with_guard(last),
        )

    def _end_all(self, grace: float) -> None:
        if self._unlink:
            with contextlib.suppress(OSError):
                os.unlink(self._unlink)
        for servers in (False, True):
            self._end([c for c in self._children.values() if c.server is servers], grace)
        if self._delete:
            shutil.rmtree(self._delete, ignore_errors=True)

    def _end(self, children: list[_Child], grace: float) -> None:
        for step in range(max((len(c.stop) for c in children), default=0)):
            for child in children:
                child.send(child.stop[min(step, len(child.stop) - 1)], group=False)
            self._wait(children, grace)
        for child in children:
            child.send(signal.SIGKILL, group=True)
        self._wait(children, 2.0)

    def _wait(self, children: list[_Child], seconds: float) -> None:
        deadline, hurry = time.monotonic() + seconds, self._orphaned
        while not all(child.gone() for child in children):
            if time.monotonic() >= deadline:
                return
            if hurry:
                time.sleep(0.02)
                continue
            self._next(0.02)
            if hurry := self._orphaned:
                deadline = min(deadline, time.monotonic() + ORPHAN_GRACE)

    def _next(self, timeout: float) -> dict[str, Any] | None:
        """The next request; None when there is none yet, or no parent any more."""
        if b"\n" not in self._input:
            # A forked copy of the parent may hold the pipe open: so its pid is watched too.
            self._orphaned = self._orphaned or os.getppid() != self._parent
            if self._orphaned or not select.select([0], [], [], timeout)[0]:
                return None
            chunk = os.read(0, 1 << 16)
            # SIGTERM may have come meanwhile, which waits for no more requests.
            self._orphaned = self._orphaned or not chunk
            self._input += chunk
        line, newline, rest = self._input.partition(b"\n")
        if not newline:
            return None
        self._input = rest
        request: dict[str, Any] = json.loads(line)
        return request

    def _answer(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(1, json.dumps({"id": request["id"], **answer}).encode() + b"\n")


def die_with_guard(number: signal.Signals) -> Callable[[], None] | None:
    """On Linux, what makes the kernel send `number` to a child when this process is killed."""
    if sys.platform != "linux":
        return None
    prctl, guard = ctypes.CDLL(None).prctl, os.getpid()

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)

    return set_signal


def _adopt_orphans() -> None:
    """On Linux, become the parent of what killed children leave: pid 1 may not reap it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(guard_type: type[Guard] = Guard) -> None:
    """Be the guard of the parent process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--delete", help="folder to delete at the end")
    parser.add_argument("--unlink", help="file to remove first of all at the end")
    options = parser.parse_args()
    # Handled, not ignored: what is ignored stays so in the children.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    _adopt_orphans()
    guard = guard_type(options.delete, options.unlink)

    def leave(*_: Any) -> None:
        guard._orphaned = True

    signal.signal(signal.SIGTERM, leave)
    guard.run()


if __name__ == "__main__":
    main()
