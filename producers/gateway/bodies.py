"""How large a request may be, whether it says so or not."""

import anyio
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import Problem

#: Of a body that is too large so much is read and thrown away, for so long (seconds): a client
#: that is still sending would else find the connection reset, and never read why.
_DRAINED, _DRAINED_WITHIN = 16 << 20, 3


class BodyLimit:
    """ASGI middleware: 413 for what is larger than `most` bytes."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app = app
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared(scope) > self._most:
            await _drain(receive)
            await too_large(self._most).response()(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                await _drain(receive)
                raise HTTPException(413)
            return message

        await self._app(scope, counted, send)


def too_large(most: int) -> Problem:
    return Problem(
        413,
        "body_too_large",
        "Body too large",
        f"The body is larger than the {most} bytes that the gateway takes.",
        "Store the bulk elsewhere and send a reference to it.",
        headers={"Connection": "close"},
    )


def _declared(scope: Scope) -> int:
    value = dict(scope["headers"]).get(b"content-length", b"0")
    return int(value) if value.isdigit() else 0


async def _drain(receive: Receive) -> None:
    read = 0
    with anyio.move_on_after(_DRAINED_WITHIN):
        while read < _DRAINED:
            message = await receive()
            read += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body"):
                return
