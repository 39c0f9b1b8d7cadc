"""Proxies as they are met: one that cuts whatever stays silent, one with a slow line."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class Proxy:
    """In front of a port of 127.0.0.1, inside of the `with`."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._socket.getsockname()[1])

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: the end
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                threading.Thread(target=self._down, args=(server, client), daemon=True).start()
                threading.Thread(target=_pump, args=(client, server), daemon=True).start()

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        """What the server says, to the client."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class IdleProxy(Proxy):
    """Cuts where no byte comes from the server for `patience` seconds."""

    def __init__(self, port: int, patience: float) -> None:
        super().__init__(port)
        self._patience = patience
        #: Connections that it has cut.
        self.cut = 0

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        server.settimeout(self._patience)
        try:
            _pump(server, client)
        except TimeoutError:
            self.cut += 1
            _end(server, client)


class SlowProxy(Proxy):
    """Takes in so many bytes a second from the server, steadily, and holds few back."""

    def __init__(self, port: int, rate: int) -> None:
        super().__init__(port)
        self._rate = rate

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 << 10)
        with contextlib.suppress(OSError):
            while data := server.recv(16 << 10):
                client.sendall(data)
                time.sleep(len(data) / self._rate)
        _end(server, client)


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Until one of them has ended. Raises TimeoutError."""
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except TimeoutError:
        raise
    except OSError:
        pass
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _end(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
