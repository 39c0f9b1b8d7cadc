"""Plumbing of the dev shop: JSON in, JSON out, in one packet, with nothing logged."""

import contextlib
import json
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

_MAX_BODY = 1 << 20


class Reply(Exception):
    """Ends a request with this answer."""

    def __init__(self, status: int, body: dict[str, Any], **headers: str) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers


class Dropped(Exception):
    """Ends a request by closing its connection."""


def refuse(status: int, sentence: str) -> NoReturn:
    raise Reply(status, {"error": sentence})


class JsonHandler(BaseHTTPRequestHandler):
    """One connection. A subclass has `on_get`, `on_post` and so on, which get the path's parts."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(self.on_get)

    def do_POST(self) -> None:
        self._answer(self.on_post)

    def do_PUT(self) -> None:
        self._answer(self.on_put)

    def do_DELETE(self) -> None:
        self._answer(self.on_delete)

    def _answer(self, handle: Callable[..., dict[str, Any]]) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        self.query = parse_qs(url.query)
        try:
            self.body = self._read()
            reply = Reply(200, handle(*parts))
        except Reply as other:
            reply = other
        except Dropped:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        data = json.dumps(reply.body).encode()
        head = f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        head += "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in reply.headers.items())
        head += "Connection: close\r\n" if self.close_connection else ""
        # One write: headers and body in one packet.
        self.wfile.write(head.encode() + b"\r\n" + data)

    def _read(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit() or int(length) > _MAX_BODY:
            self.close_connection = True
            refuse(400, "A body comes with its Content-Length and has at most 1 MiB.")
        return self.rfile.read(int(length))

    def read_object(self) -> dict[str, Any]:
        try:
            body = json.loads(self.body)
        except ValueError:
            refuse(400, "The body is not JSON.")
        if not isinstance(body, dict):
            refuse(400, "The body is not a JSON object.")
        return body

    def on_get(self, *path: str) -> dict[str, Any]:
        self.nothing_here()

    def on_post(self, *path: str) -> dict[str, Any]:
        self.nothing_here()

    def on_put(self, *path: str) -> dict[str, Any]:
        self.nothing_here()

    def on_delete(self, *path: str) -> dict[str, Any]:
        self.nothing_here()

    def nothing_here(self) -> NoReturn:
        refuse(404, f"There is nothing at {self.path}.")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the server itself refuses (a method, a line that is not HTTP), as JSON too."""
        self.close_connection = True
        self._send(Reply(code, {"error": message or HTTPStatus(code).phrase}))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing per request: the books have it."""
