"""The rig of `fleet bench live`: gateways and chat pages beside servers and workers."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from infra.devservers import free_port
from producers.bench.rig import BenchFailed, Rig
from producers.local.processes import Process, gateway_ready
from producers.local.waiting import until

_HERE = Path(__file__).resolve().parent
#: Of a message: kills come much faster than in life.
_CRASHES = 1000


class Gateway:
    """One process of `fleet gateway`; it keeps its port when it is started again."""

    def __init__(self, rig: "LiveRig") -> None:
        self._rig = rig
        self._port = free_port()
        self.url = f"ws://127.0.0.1:{self._port}/ws"
        self.start()

    def start(self) -> None:
        self._process = self._rig.gateway_process(self._port)
        self.child = self._process.child

    def ready(self) -> bool:
        """Whether it listens. Raises ServerFailed where it has ended instead."""
        return gateway_ready(self._process)


class Pages:
    """Chat pages in a process of their own: `producers.bench.live_client`."""

    def __init__(self, job: str, **params: Any) -> None:
        argv = [sys.executable, "-m", "producers.bench.live_client", job, json.dumps(params)]
        self._process = subprocess.Popen(
            argv, cwd=_HERE.parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._said: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hears(self, what: str, within: float) -> Any:
        """What it says of that next. Raises BenchFailed."""
        try:
            said = json.loads(self._said.get(timeout=within) or '{"failed": "they ended"}')
        except queue.Empty:
            raise BenchFailed(f"The chat pages said nothing for {within:g} s.") from None
        if "failed" in said:
            raise BenchFailed(f"The chat pages failed: {said['failed']}.")
        if what not in said:
            raise BenchFailed(f"The chat pages said {said} where {what} was due.")
        return said[what]

    def told(self, what: str) -> None:
        """A line for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line)
        self._said.put("")


class LiveRig(Rig):
    """Without a shop: its graph calls nothing."""

    def __init__(self, **settings: object) -> None:
        super().__init__(_HERE / "live_graphs.json", max_crashes=_CRASHES, **settings)

    def gateways(self, count: int) -> list[Gateway]:
        """Which listen when this returns."""
        found = [Gateway(self) for _ in range(count)]
        for one in found:
            until(one.ready, 60, "the gateway to listen")
        return found

    def gateway_process(self, port: int) -> Process:
        """One that begins."""
        process = self._launcher().gateway(port, "off", f"gateway-{port}")
        self._kept(process.child)
        return process

    def _start_outside(self, undo: contextlib.ExitStack) -> None:
        """Nothing is called."""
