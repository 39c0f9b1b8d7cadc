"""The chat page at `/chat`: files as they are, no build step, and nothing from elsewhere.

It talks to the WebSocket as any other client does (docs/websocket.md), and the page itself holds
nothing secret: a token is typed in by its user.
"""

import hashlib
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from .problems import Problem

router = APIRouter(tags=["page"], include_in_schema=False)

_FOLDER = Path(__file__).with_name("page")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'; "
    # No text of anybody's can become HTML, not even by a mistake of the page's.
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A browser asks each time, and is told that nothing has changed: a gateway that was
    # upgraded is never met by half of an older page.
    "Cache-Control": "no-cache",
}


@router.get("/chat")
async def chat(request: Request) -> Response:
    """The page; `?graph=` says with which agent."""
    return _file(request, "chat.html")


@router.get("/chat/")
async def with_slash(request: Request) -> Response:
    """Addresses in the page are relative to `/chat`, wherever a proxy has put that."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"../chat{query}", 307, HEADERS)


@router.get("/chat/{name}")
async def part(name: str, request: Request) -> Response:
    """A file of the page's own."""
    return _file(request, name)


def _read() -> dict[str, tuple[bytes, str, str]]:
    """(content, type, etag) of each file by its name: they are few and small."""
    found = {}
    for path in _FOLDER.iterdir():
        if path.suffix in _TYPES:
            content = path.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[path.name] = (content, _TYPES[path.suffix], etag)
    return found


_FILES = _read()


def _file(request: Request, name: str) -> Response:
    if name not in _FILES:
        raise Problem(404, "not_found", "Not found", "The chat page has no such file.")
    content, media_type, etag = _FILES[name]
    headers = {**HEADERS, "ETag": etag}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)
