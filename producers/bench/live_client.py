"""The chat pages of `fleet bench live`, in a process of their own: `python -m ... JOB PARAMS`.

Says one JSON object a line: {"ready"} when it has begun, {"token"} for the next one that any
page gets after the line `token` has come, and {"result"} or {"failed"} at its end. The line
`stop` asks for the end, and so does the end of its input.
"""

import asyncio
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from infra import open_files
from producers.bench import live_jobs


class Driver:
    """The other end of our input and output."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self._asked = False

    def say(self, **what: Any) -> None:
        print(json.dumps(what), flush=True)

    def token(self) -> None:
        """A page has got one."""
        if self._asked:
            self._asked = False
            self.say(token=time.monotonic())

    async def listen(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := (await reader.readline()).strip():
            if line == b"token":
                self._asked = True
            else:
                break
        self.stopped.set()


JOBS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    "idle": live_jobs.idle,
    "tokens": live_jobs.tokens,
    "reconnect": live_jobs.reconnect,
    "talk": live_jobs.talk,
}


async def _run(job: str, params: dict[str, Any]) -> None:
    driver = Driver()
    listening = asyncio.create_task(driver.listen())
    try:
        found = await JOBS[job](driver, **params)
        used = resource.getrusage(resource.RUSAGE_SELF)
        driver.say(result=found | {"client_cpu_s": round(used.ru_utime + used.ru_stime, 2)})
    except Exception as exc:
        driver.say(failed=f"{type(exc).__name__}: {exc}")
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening


if __name__ == "__main__":
    open_files.allow_many()
    asyncio.run(_run(sys.argv[1], json.loads(sys.argv[2])))
