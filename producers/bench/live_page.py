"""A chat page as `fleet bench live` has it: it comes back whenever its connection is lost.

It holds itself to docs/websocket.md and knows nothing else of the gateway.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from producers.bench.live_transcript import Transcript

#: Seconds for a connection and its welcome, and between two tries.
PATIENCE, PAUSE = 10.0, 0.05
#: Refusals after which the same frame may be taken.
_AGAIN_AFTER = 0.3
Heard = Callable[[dict[str, Any]], None]


@asynccontextmanager
async def opened(url: str, **init: Any) -> AsyncIterator[tuple[ClientConnection, dict[str, Any]]]:
    """A connection that has said init, and the welcome. Raises OSError, WebSocketException."""
    socket = await connect(
        url, compression=None, max_size=None, ping_interval=None, open_timeout=PATIENCE
    ).__aenter__()
    try:
        await socket.send(json.dumps({"type": "init", **init}))
        async with asyncio.timeout(PATIENCE):
            welcome = json.loads(await socket.recv())
        if welcome["type"] != "welcome":
            raise InvalidHandshake(f"no welcome: {welcome}")
        yield socket, welcome
    finally:
        await socket.close()


class Page:
    """`run` holds the connection for as long as it is not cancelled.

    urls: gateways, of which the next is tried when one is gone.
    """

    def __init__(self, urls: Sequence[str], graph: str, heard: Heard | None = None) -> None:
        self.transcript = Transcript()
        self.session_id: str | None = None
        self.connections = 0
        #: What was refused for good.
        self.refused: list[str] = []
        self.welcomed = asyncio.Event()
        self._urls = list(urls)
        self._graph = graph
        self._heard = heard
        self._socket: ClientConnection | None = None
        #: Said and not acknowledged.
        self._unsaid: dict[str, str] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        while True:
            with suppress(OSError, TimeoutError, WebSocketException, EOFError):
                await self._connected()
            self._socket = None
            self._urls.append(self._urls.pop(0))
            await asyncio.sleep(PAUSE)

    async def say(self, content: str) -> str:
        """Say it until it is acknowledged; gives its message_id."""
        name = str(uuid.uuid4())
        self._unsaid[name] = json.dumps({"type": "message", "content": content, "message_id": name})
        with suppress(WebSocketException):
            if self._socket is not None:
                await self._socket.send(self._unsaid[name])
        await self.until(lambda: name not in self._unsaid)
        return name

    async def until(self, true: Callable[[], bool]) -> None:
        """Until what has come makes it true. Raises RuntimeError for what can't be any more."""
        while not true():
            if self.refused or self.transcript.faults:
                trail = "\n".join(self.transcript.trail)
                raise RuntimeError(f"{[*self.refused, *self.transcript.faults]} after\n{trail}")
            self._changed.clear()
            await self._changed.wait()

    async def _connected(self) -> None:
        init = {"session_id": self.session_id, "last_seq": self.transcript.seq}
        given = {k: v for k, v in init.items() if v is not None}
        async with opened(self._urls[0], graph=self._graph, **given) as (socket, welcome):
            self.transcript.trail.append(str(welcome))
            self.session_id = welcome["session_id"]
            self.connections += 1
            self._socket = socket
            self.welcomed.set()
            for frame in list(self._unsaid.values()):
                await socket.send(frame)
            async for text in socket:
                self._take(json.loads(text))

    def _take(self, frame: dict[str, Any]) -> None:
        self.transcript.take(frame)
        if frame["type"] == "ack":
            self._unsaid.pop(frame["message_id"], None)
        elif frame["type"] == "error" and "seq" not in frame:
            if frame["retry"]:
                asyncio.get_running_loop().call_later(_AGAIN_AFTER, self._say_again)
            else:
                self.refused.append(f"{frame['code']}: {frame['message']}")
        if self._heard is not None:
            self._heard(frame)
        self._changed.set()

    def _say_again(self) -> None:
        async def say() -> None:
            with suppress(WebSocketException):
                for frame in list(self._unsaid.values()):
                    if self._socket is not None:
                        await self._socket.send(frame)

        self._again = asyncio.get_running_loop().create_task(say())
