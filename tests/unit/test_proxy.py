"""The proxy of the tests of outages: each mode as both ends see it."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from producers.chaos.proxy import Proxy

on_linux = pytest.mark.skipif("sys.platform != 'linux'", reason="drops packets by a Linux filter")


def _echo(connection: socket.socket) -> None:
    with connection, contextlib.suppress(OSError):
        while data := connection.recv(1000):
            connection.sendall(data)


@pytest.fixture
def network() -> Iterator[Proxy]:
    """A proxy before a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=_echo, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    with Proxy(f"echo://me:secret@127.0.0.1:{listener.getsockname()[1]}/x?y=z") as made:
        yield made
    listener.close()


def connected(network: Proxy, timeout: float = 5.0) -> socket.socket:
    host, _, port = network.url.partition("@")[2].partition("/")[0].partition(":")
    return socket.create_connection((host, int(port)), timeout)


def said(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return connection.recv(1000)


def test_it_passes_on_and_keeps_the_rest_of_the_url(network: Proxy) -> None:
    """A connection works both ways, and its end reaches the other side."""
    assert network.url.startswith("echo://me:secret@127.0.0.1:")
    assert network.url.endswith("/x?y=z")
    with connected(network) as connection:
        assert said(connection, b"hello") == b"hello"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1000) == b""


def test_a_cut_resets_what_is_open_and_serves_what_is_new(network: Proxy) -> None:
    """The client gets a reset, and connects again."""
    with connected(network) as connection:
        assert said(connection, b"hello") == b"hello"
        network.cut()
        with pytest.raises(ConnectionResetError):
            connection.recv(1000)
    with connected(network) as connection:
        assert said(connection, b"again") == b"again"


def test_a_delay_holds_back_both_directions(network: Proxy) -> None:
    """There and back take it twice."""
    network.pass_on(delay=0.1)
    with connected(network) as connection:
        began = time.monotonic()
        assert said(connection, b"hello") == b"hello"
        assert time.monotonic() - began >= 0.2


@on_linux
def test_a_black_hole_answers_nothing_and_gives_it_back_when_healed(network: Proxy) -> None:
    """Neither words nor a new connection; TCP sends what was lost again afterwards."""
    with connected(network) as connection:
        assert said(connection, b"hello") == b"hello"
        network.black_hole()
        connection.sendall(b"lost")
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1000)
        with pytest.raises(TimeoutError):
            connected(network, 0.3)
        network.pass_on()
        connection.settimeout(10)
        assert connection.recv(1000) == b"lost"


@on_linux
def test_a_black_hole_answers_no_keepalive(network: Proxy) -> None:
    """The client's kernel gives up by itself, as with a host that is lost."""
    with connected(network, 10) as connection:
        assert said(connection, b"hello") == b"hello"
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
        network.black_hole()
        with pytest.raises(TimeoutError, match="Connection timed out"):
            connection.recv(1000)
        with pytest.raises(OSError):
            connection.sendall(b"gone")
