"""`fleet` commands that own processes, run as a user runs them, and what they leave behind."""

import os
import pty
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra import folders
from tests.harness import clean_environment, eventually
from tests.warm_commands import FLEET, start


class Command:
    """One running command; `terminal`: its stdin and stderr are one; `real`: not forked."""

    def __init__(
        self, *args: str, cwd: Path, terminal: bool = False, real: bool = False, **settings: Any
    ) -> None:
        self.output = cwd / "stdout"
        self._messages = cwd / "stderr"
        self._terminal = -1
        ours = theirs = -1
        if terminal:
            ours, theirs = pty.openpty()
        with (
            open(os.devnull, "rb") as nothing,
            self.output.open("wb") as stdout,
            self._messages.open("wb") as stderr,
        ):
            streams = (
                theirs if terminal else nothing.fileno(),
                stdout.fileno(),
                theirs if terminal else stderr.fileno(),
            )
            environment = clean_environment(**settings) | {"TERM": "xterm", "COLUMNS": "120"}
            self.process = start(
                [*FLEET, *args],
                cwd=cwd,
                env=environment,
                streams=streams,
                new_session=True,
                real=real,
            )
        if terminal:
            os.close(theirs)
            self._terminal = ours
        self._seen = ""

    def messages(self) -> str:
        """What it has said on stderr so far."""
        if self._terminal < 0:
            return self._messages.read_text()
        while select.select([self._terminal], [], [], 0)[0]:
            try:
                self._seen += os.read(self._terminal, 1 << 16).decode(errors="replace")
            except OSError:
                break
        return self._seen

    def says(self, text: str, timeout: float = 60.0) -> None:
        """Wait until it has said the text."""

        def said() -> bool:
            ended = self.process.poll() is not None
            if text not in self.messages() and ended:
                pytest.fail(self.messages())
            return text in self.messages()

        eventually(said, timeout)

    def type(self, line: str) -> None:
        """Type a line in its terminal."""
        os.write(self._terminal, f"{line}\n".encode())

    def ends(self, timeout: float = 60.0) -> int:
        """Its exit code. A terminal that nobody reads would hold it up."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.messages()
            self.messages()
            time.sleep(0.02)
        return self.process.wait()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        """All processes below it, itself left out."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def close(self) -> None:
        """End it, by force if need be; its guard ends the rest."""
        if self.process.poll() is None:
            family = self.family()
            self.process.kill()
            self.process.wait(5)
            gone(family)
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


def gone(family: list[psutil.Process], timeout: float = 5.0) -> None:
    """Wait until none of the processes is there any more."""

    def none() -> bool:
        left = [process for process in family if _lives(process)]
        assert not left, left
        return True

    eventually(none, timeout)


def _lives(process: psutil.Process) -> bool:
    """Zombies do not: where pid 1 reaps nothing they stay for ever."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def temporary_folder_of(family: list[psutil.Process]) -> Path:
    """The folder that the guard in the family is to delete."""
    for process in family:
        line = process.cmdline()
        if "--delete" in line:
            return Path(line[line.index("--delete") + 1])
    raise AssertionError(f"no guard among {family}")


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the servers' user can enter: pytest's own are closed to others."""
    folder = folders.temporary_folder(os.geteuid() == 0)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
