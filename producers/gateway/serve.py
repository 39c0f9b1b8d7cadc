"""The gateway as a process: `fleet gateway`.

What would leave the fleet open to whoever reaches it is refused before anything listens.
"""

import contextlib
import errno
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import anyio
import uvicorn

from infra import open_files
from infra.errors import PortTaken, SettingsError
from infra.settings import Settings

from .app import create_app
from .database import Database
from .slow import HTTPProtocol
from .ws_line import ChatProtocol

#: Seconds that requests under way get at the end; streams end at once.
_ENDS_WITHIN = 5
#: A ping every 30 s; without an answer for 60 s more the connection is dead.
_PING_EVERY, _PING_WITHIN = 30.0, 60.0
#: Longer than proxies keep theirs: one must not be closed while a request is on its way.
_KEPT_OPEN = 75
_BACKLOG = 2048
_SHORTEST_SECRET = 32
_ENDING = (signal.SIGINT, signal.SIGTERM)


class Server(uvicorn.Server):
    """uvicorn's, which lets streams end by themselves when it is told to."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but an end that was asked for is a good one: exit code 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)


def server(settings: Settings) -> Server:
    """A server for the app; `run(sockets=[…])` serves until it is told to end."""
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        headers=[("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer")],
        http=HTTPProtocol,
        ws=ChatProtocol,
        ws_max_size=1 << 20,
        ws_ping_interval=_PING_EVERY,
        ws_ping_timeout=_PING_WITHIN,
        # Each would hold its own window of what was sent, for every session.
        ws_per_message_deflate=False,
        timeout_keep_alive=_KEPT_OPEN,
        timeout_graceful_shutdown=_ENDS_WITHIN,
    )
    return Server(config, app.state.closing)


def serve(settings: Settings, host: str, port: int, started: Callable[[str], None]) -> None:
    """Listen until SIGTERM or SIGINT. `started` is given the address. Port 0: any free one.

    Raises SettingsError for what is not safe, PortTaken, and where keys have to be looked for
    FleetUnavailable or NotMigrated.
    """
    refuse_open(settings, host)
    open_files.allow_many()
    with listening(host, port) as sock:
        name, number = sock.getsockname()[:2]
        started(f"http://{f'[{name}]' if ':' in name else name}:{number}")
        server(settings).run(sockets=[sock])


def listening(host: str, port: int) -> socket.socket:
    """A bound socket. Raises PortTaken, SettingsError for an address that is not ours."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
    except socket.gaierror as exc:
        raise _no_address(host, str(exc)) from None
    # With its protocol named, which create_server does not do: asyncio sends at once
    # (TCP_NODELAY) only what it knows to be TCP; else an answer's end waits 40 ms for an ACK.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRINUSE:
            raise PortTaken("the gateway", port) from None
        raise _no_address(host, exc.strerror or str(exc)) from None
    return sock


def _no_address(host: str, why: str) -> SettingsError:
    return SettingsError(
        f"The gateway can't listen on {host}: {why}.", "Correct FLEET_GATEWAY_HOST or --host."
    )


def refuse_open(settings: Settings, host: str) -> None:
    """Raise SettingsError where anybody, or nobody at all, could come in."""
    if settings.gateway_auth == "off":
        if not is_loopback(host):
            raise SettingsError(
                f"The gateway would listen on {host} with FLEET_GATEWAY_AUTH=off: whoever reaches "
                "it could do everything.",
                "Set FLEET_GATEWAY_AUTH=on, or listen on 127.0.0.1.",
            )
        return
    if not _checked_jwt(settings) and not _has_keys(settings):
        raise SettingsError(
            "The gateway would let nobody in: there is no API key, and no issuer of tokens is set.",
            "Make a key with `fleet keys create NAME --role producer`, or set FLEET_JWT_ISSUER, "
            "FLEET_JWT_AUDIENCE and FLEET_JWT_JWKS_URL or FLEET_JWT_SECRET. On your own machine "
            "FLEET_GATEWAY_AUTH=off will do.",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_jwt(settings: Settings) -> bool:
    """Whether tokens are taken. Raises SettingsError where it is half set."""
    secret = settings.jwt_secret
    if secret is None and settings.jwt_jwks_url is None:
        return False
    for name in ("jwt_issuer", "jwt_audience"):
        if getattr(settings, name) is None:
            raise SettingsError(
                f"FLEET_{name.upper()} is not set: tokens made by others, or for others, would be "
                "taken.",
                f"Set FLEET_{name.upper()}.",
            )
    if secret is not None and len(secret.encode()) < _SHORTEST_SECRET:
        raise SettingsError(
            f"FLEET_JWT_SECRET is shorter than {_SHORTEST_SECRET} bytes: it can be guessed.",
            "Make one with `openssl rand -hex 32`.",
        )
    return True


def _has_keys(settings: Settings) -> bool:
    database = Database(settings.require_postgres(), settings.client_timeout)
    try:
        return bool(database.rows_now("any_api_key", reads=True)[0]["found"])
    finally:
        database.close()
