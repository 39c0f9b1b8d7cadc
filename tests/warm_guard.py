"""The guard of the tests' workers: it has loaded Celery, LangGraph and what else comes from
packages, and forks where `python -m celery` would load all of it anew, at a second and a half
of CPU for each of hundreds of workers. Nothing of the project is loaded before the fork.

Run by file name, as infra/guard.py is, whose requests it takes; what is forked keeps its `-I`.
"""

import contextlib
import gc
import importlib
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from infra import guard
from tests import warm


class _Forked:
    """What the guard asks of a subprocess.Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


class WarmGuard(guard.Guard):
    def __init__(self, delete: str | None, unlink: str | None) -> None:
        super().__init__(delete, unlink)
        warm.load(*warm.WORKERS)
        gc.freeze()

    def start(self, request: dict[str, Any], log: int) -> guard.Process:
        celery = request["argv"][:3] == [sys.executable, "-m", "celery"]
        # Paths are given to a worker as it is forked.
        known, wanted = (
            warm.early({**env, "PYTHONPATH": ""}) for env in (os.environ, request["env"])
        )
        like_ours = not request["user"] and known == wanted
        if not (celery and like_ours):
            return super().start(request, log)
        with_guard = guard.die_with_guard(signal.SIGKILL)
        if pid := os.fork():
            return _Forked(pid)
        code: Any = 1
        try:
            _become(request, log, with_guard)
        except SystemExit as exc:
            code = exc.code
        except BaseException:
            traceback.print_exc()
        # All the way up, so that the interpreter ends as that of a worker does.
        raise SystemExit(code)


def _become(request: dict[str, Any], log: int, with_guard: Callable[[], None] | None) -> None:
    """`python -m celery` with these arguments, in this process."""
    os.setsid()
    if with_guard is not None:
        with_guard()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for new, old in (nothing, 0), (log, 1), (log, 2):
        os.dup2(new, old)
    # The log's own descriptor is closed on the way up.
    os.closerange(3, log)
    os.closerange(log + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    paths = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [request["cwd"], *filter(None, paths)]
    # Loaded for the guard; a worker loads its own.
    for name in [n for n in sys.modules if n.partition(".")[0] in ("infra", "tests")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    sys.argv = ["celery", *request["argv"][3:]]
    with contextlib.suppress(AttributeError):
        del sys.modules["__main__"].__file__
    runpy.run_module("celery", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    guard.main(WarmGuard)
