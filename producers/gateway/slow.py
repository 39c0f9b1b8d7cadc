"""Clients that take nothing in: what is sent to them would be kept in buffers for ever, and so
would a goodbye. Their connections are dropped; who comes back goes on where it was. Who takes in
little, but steadily, is not meant."""

import asyncio
from collections.abc import Iterator
from typing import Any

from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

#: Seconds in which a client has to take in something of what is sent.
SEND_WITHIN = 10.0
#: Bytes of a response for which it has as long.
_PIECE = 32 << 10
_ABORT = "fleet.abort"


class TooSlow(Exception):
    """The client takes in nothing."""


class HTTPProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's, whose connections can be dropped: those that become WebSockets too."""

    def connection_made(self, transport: Any) -> None:
        self.app_state: dict[str, Any] = {**self.app_state, _ABORT: transport.abort}
        super().connection_made(transport)


def within(send: Send) -> Send:
    """Sends the same, and raises TooSlow where a piece of it takes too long."""

    async def send_in_time(message: Message) -> None:
        for piece in _pieces(message):
            try:
                async with asyncio.timeout(SEND_WITHIN):
                    await send(piece)
            except TimeoutError:
                raise TooSlow from None

    return send_in_time


def _pieces(message: Message) -> Iterator[Message]:
    body = message.get("body", b"")
    if message["type"] != "http.response.body" or len(body) <= _PIECE:
        yield message
        return
    for begin in range(0, len(body), _PIECE):
        end = begin + _PIECE
        more = end < len(body) or message.get("more_body", False)
        yield {**message, "body": body[begin:end], "more_body": more}


def abort(scope: Scope) -> None:
    """End the connection of a request or a WebSocket without a word, and without waiting for
    what is in the way. The loop's next round tells its protocol."""
    if (abort := scope.get("state", {}).get(_ABORT)) is not None:
        abort()
