"""One WebSocket as its connection uses it: frames in and out, and an end that always ends.

A page that takes nothing in keeps what is sent in buffers, and a goodbye would wait behind
them: such a connection is dropped (slow).
"""

import asyncio
import contextlib
import json
import logging
from typing import Any

import anyio
import orjson
from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from . import slow

#: Seconds in which a page has to hear of the end.
CLOSE_WITHIN = 2.0
#: Bytes per second that a page has to take in of a frame.
_SLOWEST = 100_000
_log = logging.getLogger("uvicorn.websocket")
_log.setLevel(logging.WARNING)


class ChatProtocol(WebSocketsSansIOProtocol):
    """uvicorn's, which drops connections whose pings stay unanswered. It says nothing of each
    page that comes and goes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = self.conn.logger = _log

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()


class Gone(Exception):
    """The other side is not there any more."""


class Line:
    """Frames are whole and one after the other, whoever sends them."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._turn = asyncio.Lock()
        # Bytes of the frame before, which the next one waits for.
        self._under_way = 0

    async def receive(self) -> str | None:
        """The next frame's text; None for one that is not text. Raises Gone."""
        try:
            message = await self._socket.receive()
        except (WebSocketDisconnect, WebSocketDisconnected):
            raise Gone from None
        if message["type"] == "websocket.disconnect":
            raise Gone
        text: str | None = message.get("text")
        return text

    async def send(self, frame: dict[str, Any]) -> None:
        """Raises Gone, slow.TooSlow."""
        text = encoded(frame)
        try:
            async with self._turn:
                within = slow.SEND_WITHIN + self._under_way / _SLOWEST
                self._under_way = len(text.encode())
                async with asyncio.timeout(within):
                    await self._socket.send_text(text)
        except TimeoutError:
            raise slow.TooSlow from None
        except (WebSocketDisconnect, WebSocketDisconnected):
            raise Gone from None

    async def close(self, code: int, reason: str) -> None:
        """Say goodbye, or drop the connection of who doesn't listen."""
        with anyio.move_on_after(CLOSE_WITHIN, shield=True) as patience:
            with contextlib.suppress(WebSocketDisconnect, WebSocketDisconnected):
                await self._socket.close(code, reason)
        if patience.cancelled_caught:
            slow.abort(self._socket.scope)


def encoded(frame: dict[str, Any]) -> str:
    """JSON that any page can read, whatever a graph has put into it."""
    try:
        return orjson.dumps(frame).decode()
    except TypeError:  # a lone surrogate, or a number of more than 64 bits
        return json.dumps(frame, default=str)
