"""Keys in paths: a business id may hold a slash, sent as %2F.

Servers decode a path before it is routed, and `refund/a%2Fb` could not be told from
`refund/a/b`. So the path is taken as it was sent, and only what stands between its slashes is
decoded.
"""

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

_PREFIX = b"/threads/"


class EncodedSlashes:
    """ASGI middleware: a slash within a segment of a thread's path stays `%2F` until the
    route's parameter is read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path") or b""
        if scope["type"] == "http" and raw.startswith(_PREFIX) and b"%" in raw:
            parts = raw.split(b"?")[0].decode("latin-1").split("/")
            scope = {**scope, "path": "/".join(_kept(part) for part in parts)}
        await self._app(scope, receive, send)


def _kept(part: str) -> str:
    # What is not UTF-8 comes out as lone surrogates, which no name may hold.
    text = unquote(part, errors="surrogateescape")
    return text.replace("%", "%25").replace("/", "%2F")


def _read(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%")


def thread_path(graph: str, key: str) -> str:
    """`/threads/refund/a%2Fb`."""
    return f"/threads/{quote(graph, safe='')}/{quote(key, safe='')}"


GraphName = Annotated[str, Path(description="The graph.", examples=["refund"])]
Key = Annotated[
    str,
    Path(description="The business id; a slash in it as %2F.", examples=["A1001"]),
    AfterValidator(_read),
]
QuestionId = Annotated[str, Path(description="The question's id."), AfterValidator(_read)]
