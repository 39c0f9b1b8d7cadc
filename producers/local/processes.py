"""The processes beside the servers: dev shop, Celery workers, gateway, Flower.

Each is a child of the stack's guard, in a group of its own, and writes to one log.
"""

import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.devservers import Child, Stack
from infra.errors import ServerFailed

from .waiting import until

#: Importing Celery and LangGraph takes its time on a busy machine.
READY_WITHIN = 60.0
_LISTENS = re.compile(r"^shop listening on (http://\S+)$", re.MULTILINE)
_FLEET = "import sys; from producers.cli import main; sys.exit(main())"
_ROOT = Path(__file__).resolve().parents[2]
#: What Flower may do; see workers/flower.py.
_FLOWER = _ROOT / "infra" / "docker" / "flower.py"


def environment(kept: Mapping[str, str], **settings: object) -> dict[str, str]:
    """A child's environment: what is kept of ours, and settings in small letters.

    Our packages can be imported from any folder in it; None leaves a setting out.
    """
    env = dict(kept)
    if _ROOT.name not in ("site-packages", "dist-packages"):
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), kept.get("PYTHONPATH"))))
    set_ = {f"FLEET_{name.upper()}": str(v) for name, v in settings.items() if v is not None}
    return env | set_


@dataclass(frozen=True)
class Process:
    """A child with what it has written since it was started: logs are kept over restarts."""

    child: Child
    log_path: Path
    offset: int
    #: As Celery and `fleet.workers` know it, if it is a worker.
    worker: str = ""

    def said(self) -> str:
        """Its log since it was started."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(self.offset)
                return log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def last_words(self) -> str:
        """The last line of its log that says something."""
        lines = [line.strip() for line in self.said().splitlines() if line.strip()]
        return lines[-1].removeprefix("error: ") if lines else "it said nothing"

    def require_alive(self) -> None:
        """Raise ServerFailed with its last words when it has ended."""
        if self.child.poll() is not None:
            raise ServerFailed(
                f"The process {self.child.name} ended: {self.last_words().rstrip('.')}.",
                f"See {self.log_path} for more.",
            )


class Launcher:
    """Starts processes of one stack, with one environment, in one folder.

    ``shared``: its servers are not its own, so its workers' names say whose they are.
    """

    def __init__(
        self, stack: Stack, env: Mapping[str, str], cwd: Path, *, shared: bool = False
    ) -> None:
        self._stack = stack
        self._shared = shared
        self._env = dict(env)
        self._cwd = cwd
        self._logs = stack.data_dir / "logs"

    def launch(self, name: str, argv: Sequence[str | Path], **env: str) -> Process:
        """Start it; output is appended to `logs/NAME.log`. Raises ServerFailed."""
        log_path = self._logs / f"{name}.log"
        offset = log_path.stat().st_size if log_path.exists() else 0
        child = self._stack.spawn(name, argv, self._env | env, log_path, cwd=self._cwd)
        return Process(child, log_path, offset)

    def shop(self, port: int, books: Path, *options: str) -> tuple[Process, str]:
        """Start the dev shop and wait until it listens; gives its address too."""
        argv = [sys.executable, "-m", "infra.shop", "--port", str(port), "--books", str(books)]
        process = self.launch("shop", [*argv, *options])

        def address() -> str | None:
            found = _LISTENS.search(process.said())
            if found is None:
                process.require_alive()
            return found and found[1]

        return process, until(address, READY_WITHIN, "the shop to listen", 0.02) or ""

    def worker(self, name: str, *options: str) -> Process:
        """Start a Celery worker; see `worker_ready`. Options go to Celery."""
        argv = [sys.executable, "-m", "celery", "-A", "workers", "worker"]
        # Mingle would wait a second for the answers of other workers.
        known = worker_name(name, self._stack.data_dir if self._shared else None)
        argv += ["-n", known, "-l", "INFO", "--without-mingle", *options]
        return replace(self.launch(name, argv), worker=known)

    def gateway(self, port: int, auth: str, name: str = "gateway") -> Process:
        """Start the gateway on this machine's own address; see `gateway_ready`."""
        argv = [sys.executable, "-c", _FLEET, "gateway", "--host=127.0.0.1", f"--port={port}"]
        return self.launch(name, argv, FLEET_GATEWAY_AUTH=auth)

    def flower(self, port: int, password: str) -> Process:
        """Start Flower for the user fleet, only to look. The list of processes shows no
        password."""
        argv = [sys.executable, "-m", "celery", "-A", "workers", "flower", f"--conf={_FLOWER}"]
        argv += ["--address=127.0.0.1", f"--port={port}"]
        return self.launch("flower", argv, FLOWER_BASIC_AUTH=f"fleet:{password}")


def worker_name(name: str, folder: Path | None = None) -> str:
    """A worker's name as Celery and `fleet.workers` know it: no other worker of the same
    servers has it. ``folder``: of this data folder, beside those of others on this host.
    """
    if folder is not None:
        name += "-" + hashlib.sha256(bytes(folder.resolve())).hexdigest()[:6]
    return f"{name}@{socket.gethostname()}"


def slot_pid(owner: str) -> int:
    """The process of a thread's owner, `worker:pid:thread`."""
    return int(owner.rsplit(":", 2)[1])


def worker_ready(process: Process) -> bool:
    """Whether the worker serves. Raises ServerFailed when it has ended instead."""
    if f"{process.worker} ready." in process.said():
        return True
    process.require_alive()
    return False


def wait_for_worker(process: Process) -> None:
    """Until the worker serves. Raises ServerFailed."""
    until(lambda: worker_ready(process), READY_WITHIN, f"{process.child.name} to be ready")


def gateway_ready(process: Process) -> bool:
    """Whether it listens. Raises ServerFailed when it has ended instead."""
    if "The gateway listens on " in process.said():
        return True
    process.require_alive()
    return False


def wait_for_gateway(process: Process) -> None:
    """Until it listens. Raises ServerFailed."""
    until(lambda: gateway_ready(process), READY_WITHIN, "the gateway to listen")
