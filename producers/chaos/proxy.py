"""A TCP proxy between a process under test and one of its servers, that fails as networks do.

    with Proxy(server_url) as network:
        start(postgres_url=network.url)
        network.black_hole()

A mode is that of all connections through one proxy, open and new. Processes that are to
lose their network apart from others get a proxy of their own.
"""

import asyncio
import contextlib
import ctypes
import fcntl
import socket
import struct
import sys
import termios
import threading
from collections.abc import Coroutine
from typing import Any, Self
from urllib.parse import urlsplit

#: SO_ATTACH_FILTER, SO_DETACH_FILTER; a filter of one instruction, `ret #0`, lets nothing in.
_ATTACH, _DETACH = 26, 27
_RETURN_NOTHING = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_DROP_ALL = struct.pack("HL", 1, ctypes.addressof(_RETURN_NOTHING))
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_CHUNK = 1 << 16
#: Seconds for what a mode has to wait for.
_PATIENCE = 5.0
#: Seconds in which what is under way arrives, where it arrives at all.
_SETTLES = 1.0


class Proxy:
    """Listens at `url`, which is the server's but for host and port. Thread safe."""

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        self._server = _address(server_url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        login = parts.netloc.rpartition("@")[0]
        host = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = parts._replace(netloc=f"{login}@{host}" if login else host).geturl()
        self._delay = 0.0
        self._passes = asyncio.Event()
        self._dark = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.pass_on()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)

    # The modes

    def pass_on(self, delay: float = 0.0) -> None:
        """Pass everything on, each piece after `delay` seconds in either direction."""
        self._do(self._pass_on(delay))

    def cut(self) -> None:
        """Reset the connections that are open; new ones are served as before."""
        self._do(self._cut())

    def black_hole(self) -> None:
        """Nothing gets through in either direction and nobody is told, as of a lost host.

        What arrives is dropped before TCP sees it, so that not even a keepalive is answered
        or a new connection refused. Linux only.
        """
        assert sys.platform == "linux", "packets are dropped by a Linux socket filter"
        self._do(self._black_hole())

    def lead_to(self, server_url: str) -> None:
        """New connections go to this server, as an address does after a failover."""
        self._server = _address(server_url)

    def ports(self) -> set[tuple[int, int | None]]:
        """Its own: the one at which it is called, and those from which it calls the server, each
        with the server's, since others may call other servers from the same."""
        found: set[tuple[int, int | None]] = set()
        self._do(self._ports(found))
        return found

    # In the thread of the loop

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, sock=self._listener, limit=_CHUNK)
        )
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        # They end, and let go of their sockets, in a few more rounds.
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _pass_on(self, delay: float) -> None:
        self._delay, self._dark = delay, False
        for each in self._sockets():
            # There is none but after a black hole.
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, _DETACH, 0)
        self._passes.set()

    async def _cut(self) -> None:
        for writer in self._writers:
            _reset(writer)

    async def _black_hole(self) -> None:
        self._passes.clear()
        # What was not acknowledged yet would be sent again, which is a sign of life. But one
        # that takes nothing in, a stopped process say, never acknowledges the rest.
        until = self._loop.time() + _SETTLES
        while any(map(_unacknowledged, self._sockets())) and self._loop.time() < until:
            await asyncio.sleep(0.005)
        self._dark = True
        for each in self._sockets():
            each.setsockopt(socket.SOL_SOCKET, _ATTACH, _DROP_ALL)

    async def _ports(self, found: set[tuple[int, int | None]]) -> None:
        called = self._listener.getsockname()[1]
        found.add((called, None))
        for each in self._sockets()[1:]:
            with contextlib.suppress(OSError):
                if (port := each.getsockname()[1]) != called:
                    found.add((port, each.getpeername()[1]))

    def _sockets(self) -> list[Any]:
        return [self._listener, *(writer.get_extra_info("socket") for writer in self._writers)]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        if self._dark:
            # It was made before the black hole and is met only now.
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, _ATTACH, _DROP_ALL)
        self._writers.add(writer)
        try:
            await self._passes.wait()
            from_server, to_server = await asyncio.open_connection(*self._server, limit=_CHUNK)
        except (OSError, asyncio.CancelledError):
            _reset(writer)
            self._writers.discard(writer)
            return
        ends = {writer, to_server}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, to_server))
                both.create_task(self._pump(from_server, writer))
            for end in ends:
                end.close()
        except* (OSError, asyncio.CancelledError):
            for end in ends:
                _reset(end)
        finally:
            self._writers -= ends

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await asyncio.sleep(self._delay)
            await self._passes.wait()
            writer.write(data)
            await writer.drain()
        writer.write_eof()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname and parts.port, "the server's URL names host and port"
    return parts.hostname, parts.port


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it without a goodbye."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
        )
    writer.transport.abort()


def _unacknowledged(sock: Any) -> bool:
    if sock.fileno() < 0:
        return False
    try:
        left = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, struct.pack("i", 0))
    except OSError:
        # It listens, or has gone.
        return False
    return bool(struct.unpack("i", left)[0])
