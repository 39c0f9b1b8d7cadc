"""Where the observer listens: Python's sockets and TLS, database clients, new processes.

Installed once, before the graphs are loaded, and only in the workers of a chaos run.
"""

import functools
import re
import socket
import sqlite3
import ssl
import sys
from collections.abc import Callable
from sqlite3 import dbapi2
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .unledgered import Observer

_CHANGES = re.compile(
    r"\s*(--[^\n]*\s*)*(with\b.*\b)?"
    r"(insert|update|delete|merge|call|copy|create|drop|alter|truncate|do|notify|replace)\b",
    re.IGNORECASE | re.DOTALL,
)
_TLS_RECORDS = (0x14, 0x15, 0x16, 0x17)


class Wires:
    """Wraps what leaves the process; tells one observer."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        #: Sockets on which something was sent and nothing read since.
        self._asked: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        self._tls_in_python = False

    def install(self) -> None:
        """Replace the methods; there is no way back."""
        for kind in (socket.socket, ssl.SSLSocket):
            for name in ("send", "sendall", "sendmsg", "sendto"):
                self._before(kind, name, self._sending)
            for name in ("recv", "recv_into", "recvfrom", "recvmsg"):
                self._before(kind, name, lambda sock, *_: self._asked.pop(sock, None))
        for name in ("connect", "connect_ex"):
            self._before(socket.socket, name, self._connecting)
        self._before(ssl.SSLObject, "do_handshake", self._shaking_hands)
        self._before(ssl.SSLObject, "write", self._writing_tls)
        self._before(ssl.SSLObject, "read", lambda tls, *_: self._asked.pop(tls, None))
        self._resolve()
        for cursor in (psycopg.Cursor, psycopg.AsyncCursor):
            for name in ("execute", "executemany"):
                self._before(cursor, name, self._executing)
        for connection in (psycopg.Connection, psycopg.AsyncConnection):
            self._connect(connection)
        self._open_sqlite()
        sys.addaudithook(self._audited)

    def _before(self, kind: type, name: str, tell: Callable[..., Any]) -> None:
        stock = vars(kind).get(name) or getattr(kind, name)

        @functools.wraps(stock)
        def told(self: Any, *args: Any, **kwargs: Any) -> Any:
            tell(self, *args)
            return stock(self, *args, **kwargs)

        setattr(kind, name, told)

    # Sockets

    def _sending(self, sock: socket.socket, data: Any = b"", *rest: Any) -> None:
        if self._asked.get(sock):
            return
        self._asked[sock] = True
        head = _head(data)
        if self._tls_in_python and head[1:2] == b"\x03" and head[0] in _TLS_RECORDS:
            return
        address = _peer(sock, rest)
        if address is not None and not self._observer.is_own(*address):
            self._observer.wrote(f"{address[0]}:{address[1]}", head)

    def _connecting(self, sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            self._observer.require_allowed(_host(address[0]))

    def _resolve(self) -> None:
        stock = socket.getaddrinfo

        @functools.wraps(stock)
        def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
            name = host.decode() if isinstance(host, bytes) else str(host or "")
            # This machine's own name is asked for by Celery and the like.
            if name and name != socket.gethostname():
                self._observer.require_allowed(name)
            found = stock(host, *args, **kwargs)
            self._observer.resolved(name, {str(f[4][0]) for f in found if name})
            return found

        socket.getaddrinfo = getaddrinfo

    # TLS without a socket of its own: asyncio's

    def _shaking_hands(self, *_: Any) -> None:
        self._tls_in_python = True

    def _writing_tls(self, tls: ssl.SSLObject, data: Any) -> None:
        if not self._asked.get(tls):
            self._asked[tls] = True
            self._observer.wrote(str(tls.server_hostname or "TLS"), _head(data))

    # Databases

    def _executing(self, cursor: Any, statement: Any, *_: Any) -> None:
        info = cursor.connection.info
        if not self._observer.is_own(_host(info.host), info.port) and _changes(statement):
            self._observer.call(f"SQL {info.host}:{info.port}/{info.dbname}")

    def _connect(self, kind: Any) -> None:
        stock = vars(kind)["connect"].__func__
        observer = self._observer

        @functools.wraps(stock)
        def connect(cls: Any, conninfo: str = "", *args: Any, **kwargs: Any) -> Any:
            names = {**conninfo_to_dict(conninfo), **kwargs}
            for host in str(names.get("host") or names.get("hostaddr") or "").split(","):
                if not host.startswith("/"):
                    observer.require_allowed(host)
            return stock(cls, conninfo, *args, **kwargs)

        kind.connect = classmethod(connect)

    def _open_sqlite(self) -> None:
        stock = sqlite3.connect
        modules: tuple[Any, ...] = (sqlite3, dbapi2)

        @functools.wraps(stock)
        def connect(*args: Any, **kwargs: Any) -> Any:
            made = stock(*args, **kwargs)
            made.set_trace_callback(self._traced)
            return made

        for module in modules:
            module.connect = connect

    def _traced(self, statement: str) -> None:
        if _changes(statement):
            self._observer.call("SQL sqlite3")

    # What Python itself tells of

    def _audited(self, event: str, args: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.system"):
            self._observer.call(f"process {_program(args[0])}")


def _head(data: Any) -> bytes:
    """The first bytes; of sendmsg's buffers, those of the first."""
    if not isinstance(data, bytes | bytearray | memoryview):
        data = next(iter(data), b"")
    return bytes(memoryview(data)[:400])


def _peer(sock: socket.socket, rest: tuple[Any, ...]) -> tuple[str, int] | None:
    """Whom a socket talks to; None for one within this machine's processes."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        peer = sock.getpeername()
    except OSError:
        peer = next((r for r in reversed(rest) if isinstance(r, tuple)), None)
    return (_host(peer[0]), int(peer[1])) if peer else None


def _host(host: Any) -> str:
    """Without what IPv6 puts in front of an IPv4 address."""
    return str(host).removeprefix("::ffff:")


def _changes(statement: Any) -> bool:
    if hasattr(statement, "as_string"):
        statement = statement.as_string(None)
    text = statement.decode() if isinstance(statement, bytes) else str(statement)
    return _CHANGES.match(text) is not None


def _program(command: Any) -> str:
    text = command.decode() if isinstance(command, bytes) else str(command)
    return text.split()[0].rpartition("/")[2] if text.split() else "?"
