"""A server that speaks OpenAI's chat protocol, for tests: it streams, fails and keeps books.

What it says is up to a script: one :class:`Say` for each request in turn, or a function from
the request's body. It runs in threads of the test's process, on a port of its own.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Say:
    """One reply. ``tools``: (name, arguments) of calls; arguments given as text go out as they
    are. ``status``: an error instead. ``cut``: the connection breaks after so many parts of a
    stream; ``stop``: the stream ends so early, in good order. ``gate``: it waits there."""

    text: str = ""
    tools: tuple[tuple[str, Any], ...] = ()
    status: int = 200
    retry_after: float | None = None
    cut: int | None = None
    stop: int | None = None
    gate: threading.Event | None = None
    finish: str | None = None
    pause: float = 0.0


def tool(name: str, **arguments: Any) -> Say:
    """A reply that calls one tool."""
    return Say(tools=((name, arguments),))


Script = Callable[[dict[str, Any]], Say]


@dataclass
class Asked:
    """A request: its body, and its headers by their names in small letters."""

    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body["messages"]
        return found


@dataclass
class OpenAIServer:
    """Use as a context manager; ``url`` is what a client takes as its base URL."""

    script: Script | list[Say] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def __enter__(self) -> Self:
        server = self

        class Handler(_Handler):
            owner = server

        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def reply_to(self, asked: Asked) -> Say:
        """The script's next; status 500 once a list is at its end."""
        with self._lock:
            self.asked.append(asked)
            if callable(self.script):
                return self.script(asked.body)
            return self.script.pop(0) if self.script else Say(status=500)


class _Handler(BaseHTTPRequestHandler):
    owner: OpenAIServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = Asked(body, {k.lower(): v for k, v in self.headers.items()})
        say = self.owner.reply_to(asked)
        number = len(self.owner.asked)
        if say.gate is not None:
            say.gate.wait(30)
        if say.status != 200:
            self._fail(say)
        elif body.get("stream"):
            self._stream(say, number)
        else:
            self._whole(say, number)

    def _fail(self, say: Say) -> None:
        self.send_response(say.status)
        if say.retry_after is not None:
            self.send_header("Retry-After", f"{say.retry_after:g}")
        self._send(json.dumps({"error": {"message": "as scripted", "type": "test"}}).encode())

    def _whole(self, say: Say, number: int) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": say.text or None}
        if say.tools:
            message["tool_calls"] = [*_calls(say, number)]
        choice = {"index": 0, "message": message, "finish_reason": _finish(say)}
        self.send_response(200)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        found = {**_head(number, "chat.completion"), "choices": [choice], "usage": usage}
        self._send(json.dumps(found).encode())

    def _send(self, body: bytes) -> None:
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, say: Say, number: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for sent, delta in enumerate(_deltas(say, number)):
            if sent == say.cut:
                # Neither an end of the stream nor of the chunks.
                self.close_connection = True
                self.connection.close()
                return
            if sent == say.stop:
                break
            self._chunk(number, delta, None)
            time.sleep(say.pause)
        else:
            self._chunk(number, {}, _finish(say))
            self._write(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, number: int, delta: dict[str, Any], finish: str | None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        found = {**_head(number, "chat.completion.chunk"), "choices": [choice]}
        self._write(b"data: " + json.dumps(found).encode() + b"\n\n")

    def _write(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _head(number: int, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1, "model": "test"}


def _finish(say: Say) -> str:
    return say.finish or ("tool_calls" if say.tools else "stop")


def _calls(say: Say, number: int) -> Iterator[dict[str, Any]]:
    for n, (name, given) in enumerate(say.tools):
        arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        function = {"name": name, "arguments": arguments}
        yield {"id": f"call-{number}-{n}", "type": "function", "function": function}


def _deltas(say: Say, number: int) -> Iterator[dict[str, Any]]:
    """A word at a time; a tool call in two parts."""
    yield {"role": "assistant", "content": ""}
    for word in say.text.split(" ") if say.text else []:
        yield {"content": word + " "}
    for n, call in enumerate(_calls(say, number)):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        half = len(arguments) // 2
        begun = {"name": name, "arguments": arguments[:half]}
        yield {"tool_calls": [{"index": n, **call, "function": begun}]}
        yield {"tool_calls": [{"index": n, "function": {"arguments": arguments[half:]}}]}
