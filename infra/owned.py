"""Children that die with us: the parent's side of the guard process.

`GuardLink` starts `infra/guard.py` and speaks to it; `Child` is one process that the
guard owns for us. None of them outlives this process, however it ends.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from infra import guard
from infra.errors import ServerFailed

_ANSWER_WITHIN = 30.0


class Child:
    """A process in a group of its own, owned by the guard."""

    def __init__(self, link: "GuardLink", name: str, pid: int, log_path: Path) -> None:
        self.name = name
        self.pid = pid
        self.log_path = log_path
        self._link = link
        self._code: int | None = None

    def __repr__(self) -> str:
        return f"<Child {self.name} pid={self.pid}>"

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        if self._code is None:
            self._code = self._link.ask("poll", pid=self.pid)["code"]
        return self._code

    def wait(self, timeout: float) -> int | None:
        """Like `poll`, after waiting up to `timeout` seconds for the end."""
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        return code

    def send(self, number: signal.Signals, *, group: bool = False) -> bool:
        """Send a signal to the process, or to its whole group; False when it is gone."""
        answer = self._link.ask("signal", pid=self.pid, signal=number.name, group=group)
        return bool(answer["sent"])

    def terminate(self) -> bool:
        """SIGTERM to the process alone: Celery's parent stops its own children."""
        return self.send(signal.SIGTERM)

    def kill(self) -> bool:
        """SIGKILL to the process alone."""
        return self.send(signal.SIGKILL)

    def kill_group(self) -> bool:
        """SIGKILL to the process and all that it has started."""
        return self.send(signal.SIGKILL, group=True)

    def log(self) -> str:
        """What it has written to its log so far."""
        with contextlib.suppress(FileNotFoundError):
            return self.log_path.read_text(errors="replace")
        return ""


class GuardLink:
    """The pipes to one guard process, which runs `program`."""

    program: ClassVar[str] = guard.__file__

    def __init__(
        self,
        log_path: Path,
        *,
        lock_fd: int | None = None,
        delete: Path | None = None,
        unlink: Path | None = None,
    ) -> None:
        argv = [sys.executable, "-I", self.program]
        argv += ["--delete", str(delete)] if delete else []
        argv += ["--unlink", str(unlink)] if unlink else []
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                pass_fds=() if lock_fd is None else (lock_fd,),
            )
        assert self._process.stdin and self._process.stdout
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._lock = threading.Lock()
        self._closed = False
        self._asked = 0
        self._input = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def spawn(
        self,
        name: str,
        argv: Sequence[str | Path],
        log_path: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: tuple[int, int] | None = None,
        stop: Sequence[str] = ("SIGTERM",),
        server: bool = False,
    ) -> Child:
        """Start a process; see `infra.guard` for the arguments. Raises ServerFailed."""
        answer = self.ask(
            "spawn",
            argv=[str(arg) for arg in argv],
            env=dict(os.environ if env is None else env),
            cwd=str(cwd or Path.cwd()),
            log=str(log_path),
            user=user,
            stop=list(stop),
            server=server,
        )
        if "error" in answer:
            raise ServerFailed(f"{name} could not be started: {answer['error']}.", pid=None)
        return Child(self, name, answer["pid"], log_path)

    def ask(self, op: str, *, within: float = _ANSWER_WITHIN, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises ServerFailed when the guard is gone, and after `close`.
        """
        # Not while stopping, which may take long: a second Ctrl-C is to cut that short.
        later = contextlib.nullcontext() if op == "stop" else _interrupts_later()
        with self._lock, later:
            if self._closed:
                # The numbers of the pipes may be those of other files by now.
                raise ServerFailed("The servers and all that ran beside them were ended.", _AGAIN)
            self._asked += 1
            line = json.dumps({"id": self._asked, "op": op, **request}).encode() + b"\n"
            try:
                while line:
                    line = line[os.write(self._to, line) :]
                return self._answer(self._asked, time.monotonic() + within)
            except OSError as exc:
                raise ServerFailed(f"The guard of the servers is gone: {exc}.", _AGAIN) from exc

    def close(self, grace: float) -> None:
        """End all children, in order and within about `grace` seconds, and the guard."""
        with contextlib.suppress(ServerFailed):
            if self._closed or not (self._process.stdin and self._process.stdout):
                return
            try:
                self.ask("stop", grace=grace, within=3 * grace + 10)
            finally:
                # Also when a second Ctrl-C cuts this short: EOF makes the guard hurry.
                self._closed = True
                self._process.stdin.close()
                self._process.stdout.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(5)

    def _answer(self, number: int, deadline: float) -> dict[str, Any]:
        while True:
            line, newline, rest = self._input.partition(b"\n")
            if not newline:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._from], [], [], left)[0]:
                    raise OSError("no answer")
                chunk = os.read(self._from, 1 << 16)
                if not chunk:
                    raise OSError("it has ended")
                self._input += chunk
                continue
            self._input = rest
            answer: dict[str, Any] = json.loads(line)
            if answer["id"] == number:
                return answer


_AGAIN = "Start again; the data is kept."


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Hold Ctrl-C back for the moment that a question takes, so that no answer is lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
