"""A pooler: what PgBouncer is to a client, in as few lines as it takes.

In transaction mode each transaction of a client runs on whichever server session has been
free the longest, so two in a row run on two; in statement mode so does each statement, and
transactions are refused; in session mode a client keeps its session until it leaves. Like
PgBouncer it answers the start itself, with a backend's pid that is made up, and refuses
the start parameter `options` unless told to ignore it.
Protocol: https://www.postgresql.org/docs/current/protocol-message-formats.html.
"""

import contextlib
import os
import queue
import socket
import struct
import threading
from typing import Self
from urllib.parse import urlsplit

import psycopg

_WITHOUT_ENCRYPTION = {80877103, 80877104}
_TOLD = ("server_version", "client_encoding", "standard_conforming_strings", "integer_datetimes")


class TransactionPooler:
    """Listens at `url` and works with two sessions of the server at the URL it is given."""

    def __init__(
        self, server_url: str, *, takes_options: bool, mode: str = "transaction", size: int = 2
    ) -> None:
        self._takes_options = takes_options
        self._mode = mode
        self._sessions = [psycopg.connect(server_url, sslmode="disable") for _ in range(size)]
        self._free: queue.Queue[socket.socket] = queue.Queue()
        for session in self._sessions:
            server = socket.socket(fileno=os.dup(session.fileno()))
            server.settimeout(10)
            self._free.put(server)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        database = urlsplit(server_url).path
        self.url = f"postgresql://anybody@127.0.0.1:{port}{database}?sslmode=disable"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for session in self._sessions:
            session.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), client:
            if not self._greet(client):
                return
            server: socket.socket | None = None
            try:
                while (message := read_packet(client))[:1] != b"X":
                    if self._mode == "statement" and message[5:].upper().startswith(b"BEGIN"):
                        client.sendall(_NO_TRANSACTIONS)
                        return
                    server = server or self._free.get(timeout=10)
                    server.sendall(message)
                    # Query and Sync are answered up to ReadyForQuery; I: in no transaction.
                    ended = message[:1] in (b"Q", b"S") and _answer(server, client) == b"I"
                    if ended and self._mode != "session":
                        self._free.put(server)
                        server = None
            finally:
                if server is not None:
                    self._free.put(server)

    def _greet(self, client: socket.socket) -> bool:
        options = b"options" in started(client).split(b"\0")[::2]
        if options and not self._takes_options:
            client.sendall(
                packet(b"E", b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0")
            )
            return False
        told = {name: self._sessions[0].info.parameter_status(name) or "" for name in _TOLD}
        client.sendall(greeting(**told))
        return True


def started(client: socket.socket) -> bytes:
    """What a client wants at its start: names and values, each with a zero byte at its end."""
    while True:
        (length,) = struct.unpack("!I", exactly(client, 4))
        start = exactly(client, length - 4)
        (version,) = struct.unpack("!I", start[:4])
        if version not in _WITHOUT_ENCRYPTION:
            return start[4:]
        client.sendall(b"N")


def greeting(**told: str) -> bytes:
    """The server lets the client in, asks for no password and is ready."""
    return (
        packet(b"R", struct.pack("!I", 0))
        + b"".join(packet(b"S", f"{n}\0{v}\0".encode()) for n, v in told.items())
        + packet(b"K", struct.pack("!II", 4711, 0))
        + packet(b"Z", b"I")
    )


def _answer(server: socket.socket, client: socket.socket) -> bytes:
    """Pass on what the server says until it is ready; its transaction's status."""
    while True:
        message = read_packet(server)
        client.sendall(message)
        if message[:1] == b"Z":
            return message[5:6]


def packet(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def read_packet(source: socket.socket) -> bytes:
    head = exactly(source, 5)
    (length,) = struct.unpack("!I", head[1:])
    return head + exactly(source, length - 4)


def exactly(source: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        if not (more := source.recv(size - len(found))):
            raise EOFError
        found += more
    return found


_NO_TRANSACTIONS = packet(
    b"E", b"SFATAL\0C08P01\0Mtransaction blocks not allowed in statement pooling mode\0\0"
)
