"""`fleet` and `celery` commands forked from a process that has loaded the packages, where a real
start would load them anew, at half a second of CPU or more. Nothing of the project is loaded
before the fork, and what a command itself starts, guard, servers and workers, it starts as ever.

The process is this file, run by its name at the first command of a session; it ends with the
session's. A request is one JSON object on a line, with four files: the command's standard streams,
and a pipe that is told its pid and, once it has ended, how.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests import warm

ROOT = Path(__file__).resolve().parents[1]
_CODE = "import sys; from producers.cli import main; sys.exit(main())"
#: A real start, before the command's arguments.
FLEET = [sys.executable, "-c", _CODE]
CELERY = [sys.executable, "-m", "celery"]
_NUMBER = struct.Struct("i")


class Process(Protocol):
    """A command that was started, as a subprocess.Popen is one."""

    pid: int
    returncode: Any

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...
    def kill(self) -> None: ...


def start(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    streams: tuple[int, int, int],
    new_session: bool = False,
    real: bool = False,
) -> Process:
    """Start a command, [*FLEET, …] or [*CELERY, …]; its standard streams are those descriptors.

    `real`: not forked, as is none whose packages would have been loaded otherwise.
    """
    assert [*argv[:3]] in (FLEET, CELERY)
    if not real and warm.early(env) == warm.early((starter := _starter()).environment):
        return _Forked(starter, argv, cwd, env, streams, new_session)
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=new_session,
    )


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = 60.0,
    real: bool = False,
) -> "subprocess.CompletedProcess[str]":
    """What a command, with nothing to read, writes until it ends."""
    with (
        open(os.devnull, "rb") as nothing,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        streams = nothing.fileno(), out.fileno(), err.fileno()
        process = start(argv, cwd=cwd, env=env, streams=streams, real=real)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        texts = []
        for file in out, err:
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
        return subprocess.CompletedProcess(argv, code, *texts)


class _Forked:
    def __init__(
        self,
        starter: "_Starter",
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        new_session: bool,
    ) -> None:
        self.returncode: int | None = None
        self._told, tell = os.pipe()
        self._argv = argv
        request = {"argv": argv, "cwd": str(cwd), "env": dict(env), "session": new_session}
        try:
            starter.ask(request, [*streams, tell])
        finally:
            os.close(tell)
        self.pid = self._number()

    def poll(self) -> int | None:
        return self._code_within(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._code_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self._argv, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _code_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], seconds)[0]:
            self.returncode = self._number()
            os.close(self._told)
        return self.returncode

    def _number(self) -> int:
        told = os.read(self._told, _NUMBER.size)
        assert told, "the process that starts commands is gone"
        number: int = _NUMBER.unpack(told)[0]
        return number


class _Starter:
    """The process that is forked, seen from the tests."""

    def __init__(self) -> None:
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, request: dict[str, Any], files: list[int]) -> None:
        line = json.dumps(request).encode() + b"\n"
        # The files go with the first byte.
        socket.send_fds(self._socket, [line[:1]], files)
        self._socket.sendall(line[1:])


@functools.cache
def _starter() -> _Starter:
    return _Starter()


# The process itself


def _serve(requests: socket.socket) -> None:
    warm.load(*warm.WORKERS, *warm.COMMANDS)
    gc.freeze()
    ended, wake = socket.socketpair()
    for end in ended, wake:
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    # Handled, not ignored: Ctrl-C in the terminal is for the tests and their commands.
    for number in signal.SIGCHLD, signal.SIGINT:
        signal.signal(number, lambda *_: None)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, ended], [], [])
        if ended in ready:
            with contextlib.suppress(BlockingIOError):
                ended.recv(1 << 12)
            _tell_of_ends(running)
        if requests in ready:
            asked = _request(requests)
            if asked is None:
                return
            request, (*streams, tell) = asked
            pid = os.fork()
            if not pid:
                # Closed below, under numbers that the command may then use.
                for ours in requests, ended, wake:
                    ours.detach()
                _become(request, streams)
            for file in streams:
                os.close(file)
            running[pid] = tell
            os.write(tell, _NUMBER.pack(pid))


def _request(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    line, files, _, _ = socket.recv_fds(requests, 1, 4)
    if not line:
        return None
    while not line.endswith(b"\n"):
        line += requests.recv(1 << 16)
    return json.loads(line), files


def _tell_of_ends(running: dict[int, int]) -> None:
    for pid, tell in [*running.items()]:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            # Nobody may be waiting for it any more.
            with contextlib.suppress(BrokenPipeError):
                os.write(tell, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os.close(running.pop(pid))


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Python with these arguments, in this process."""
    if request["session"]:
        os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for new, old in enumerate(streams):
        os.dup2(old, new)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for name in [n for n in sys.modules if n.partition(".")[0] == "tests"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    argv = sys.orig_argv = request["argv"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    if argv[:3] == CELERY:
        sys.path[0] = request["cwd"]
        sys.argv = ["celery", *argv[3:]]
        runpy.run_module("celery", run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = ""
        sys.argv = ["-c", *argv[3:]]
        exec(_CODE, sys.modules["__main__"].__dict__)
    raise SystemExit


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
