"""Clients that take nothing in: what is sent to them would be kept in buffers for ever, and so
would a goodbye. Their connections are dropped; who comes back goes on where it was."""

import asyncio
from typing import Any

from starlette.types import Message, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

#: Seconds in which a client has to take in what is sent.
SEND_WITHIN = 10.0
_ABORT = "fleet.abort"


class TooSlow(Exception):
    """The client takes in nothing."""


class HTTPProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's, whose connections can be dropped."""

    def connection_made(self, transport: Any) -> None:
        self.app_state: dict[str, Any] = {**self.app_state, _ABORT: transport.abort}
        super().connection_made(transport)


def within(send: Send) -> Send:
    """Sends the same, and raises TooSlow where that takes too long."""

    async def send_in_time(message: Message) -> None:
        try:
            async with asyncio.timeout(SEND_WITHIN):
                await send(message)
        except TimeoutError:
            raise TooSlow from None

    return send_in_time


async def drop(scope: Scope) -> None:
    """End the connection of a request without a word."""
    if (abort := scope.get("state", {}).get(_ABORT)) is not None:
        abort()
        # The loop's next round tells the protocol.
        await asyncio.sleep(0)
