"""Servers that an earlier stack left running on a data folder, and how they are ended.

The guard ends its servers in every case but its own SIGKILL, and on Linux even then.
What is left is told from a stranger with the same pid by its command line.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path


def end_leftover(pid_file: Path, marker: str, signals: Sequence[str]) -> None:
    """End the process named in the file if `marker` is in its command line.

    If that pid is alive and somebody else's, only the file goes: Postgres would take
    the stranger for a server of its own.
    """
    try:
        pid = int(pid_file.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    if not is_alive(pid):
        return
    if marker not in command_line(pid):
        pid_file.unlink(missing_ok=True)
        return
    for name in (*signals, "SIGKILL"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[name])
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if not is_alive(pid):
                return
            time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Whether a process of this number exists, zombies not counted where that can be told."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def command_line(pid: int) -> str:
    """The command line of a process; empty when it cannot be read."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
        return listed.stdout
    return ""
