"""One signed POST to somebody's address: Standard Webhooks, and who may be called.

Whoever sets an address, or can change what its name resolves to, must not reach machines of
our own network through us: the name is resolved here, every address that it has is looked
at, and the connection goes to one that was looked at. No redirect is followed and no proxy
of the environment is used, since both would lead elsewhere.
"""

import http.client
import ipaddress
import os
import socket
import ssl
import threading
import time
import weakref
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import SplitResult, unquote, urlsplit

from standardwebhooks import Webhook

#: Seconds for a whole call.
TIMEOUT = 10.0
#: What of IPv6 is out in the internet, by RFC 4291: neither site-local nor local NAT64 is of it.
_UNICAST = ipaddress.IPv6Network("2000::/3")
#: Where the last 32 bits are an IPv4 address: NAT64, compatible, mapped, translated.
_PREFIXES = [
    ipaddress.IPv6Network(prefix)
    for prefix in ("64:ff9b::/96", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96")
]
#: The same behind any prefix, as bits 64 to 95: ISATAP, RFC 5214.
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
#: Open ones of this process.
_sockets: "weakref.WeakSet[socket.socket]" = weakref.WeakSet()

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class NotDelivered(Exception):
    """There was no answer. The text names the host, never the address, which may be secret."""


class TargetRefused(NotDelivered):
    """The address is one of a private network."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the other side said; retry_after in seconds, where it asked for a pause."""

    status: int
    retry_after: float | None = None


def signed(secret: str, message_id: str, body: bytes, at: datetime) -> dict[str, str]:
    """The headers of a Standard Webhook. secret: one or more keys, parted by white space, each
    of which signs, so that a receiver can change to a new one. ``at`` has a time zone."""
    # The library takes a time for UTC, whatever it says.
    at = at.astimezone(UTC)
    signatures = [Webhook(key).sign(message_id, at, body.decode()) for key in secret.split()]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    private: bool = False,
    timeout: float = TIMEOUT,
) -> Reply:
    """Send it; `timeout` is for all of it but the name's resolution.

    private: whether addresses of private networks may be called. Raises NotDelivered.
    """
    host = ""
    begun = time.monotonic()
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        addresses = _resolved(host, parts.port or _default_port(parts), private)
        return _sent(parts, host, addresses, body, headers, timeout)
    except (OSError, http.client.HTTPException, ValueError) as exc:
        if time.monotonic() - begun >= timeout:
            raise NotDelivered(f"{host} gave no answer within {timeout:g} s") from None
        # Its text may repeat what was sent.
        said = exc.strerror if isinstance(exc, OSError) and exc.strerror else type(exc).__name__
        raise NotDelivered(f"{host} could not be reached: {said}") from None


def unreachable(url: str, *, private: bool = False) -> str | None:
    """Why this address would not be called, as far as a look at its name tells; None: it would."""
    try:
        parts = urlsplit(url)
        _resolved(parts.hostname or "", parts.port or _default_port(parts), private)
    except TargetRefused as refused:
        return str(refused)
    except (OSError, ValueError):
        return "its host can't be found"
    return None


def is_public(address: Address) -> bool:
    """Whether it is out in the internet; of an IPv6 address that stands for an IPv4 one, that is
    asked of what it stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    if any(address in prefix for prefix in _PREFIXES):
        return is_public(_ending(address))
    within = address.sixtofour or (_ending(address) if _is_isatap(address) else None)
    # Teredo, which stands for two, is not global.
    return address in _UNICAST and address.is_global and (within is None or is_public(within))


def _ending(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    """Of the last 32 bits."""
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


def _is_isatap(address: ipaddress.IPv6Address) -> bool:
    return int(address) >> 32 & 0xFFFFFFFF in _ISATAP


def _resolved(host: str, port: int, private: bool) -> list[tuple[str, int]]:
    """(address, port) to try in turn."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    if not private:
        for text in addresses:
            if not is_public(ipaddress.ip_address(text)):
                is_one = "is" if host == text else f"is {text},"
                raise TargetRefused(
                    f"{host} {is_one} an address of a private network; set "
                    "FLEET_NOTIFY_PRIVATE=true if it is meant"
                )
    return [(text, port) for text in addresses]


def _sent(
    parts: SplitResult,
    host: str,
    addresses: list[tuple[str, int]],
    body: bytes,
    headers: Mapping[str, str],
    timeout: float,
) -> Reply:
    deadline = time.monotonic() + timeout
    sock = _connected(addresses, deadline)
    # A receiver that sends a byte now and then would never run into the socket's timeout.
    alarm = threading.Timer(max(deadline - time.monotonic(), 0.001), _shut, (sock,))
    alarm.daemon = True
    alarm.start()
    try:
        if parts.scheme == "https":
            secure = _context().wrap_socket(
                sock, server_hostname=host, do_handshake_on_connect=False
            )
            _sockets.add(secure)
            sock, alarm.args = secure, (secure,)
            secure.do_handshake()
        return _exchange(parts, host, sock, body, headers)
    finally:
        alarm.cancel()
        _shut(sock)
        sock.close()


def _exchange(
    parts: SplitResult, host: str, sock: socket.socket, body: bytes, headers: Mapping[str, str]
) -> Reply:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    conn = kind(host, parts.port)
    conn.sock = sock
    if parts.username is not None:
        known = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers = {"authorization": f"Basic {b64encode(known).decode()}", **headers}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    conn.request("POST", path, body, {"user-agent": "threadfleet", **headers})
    response = conn.getresponse()
    return Reply(response.status, _pause(response.getheader("retry-after")))


def _connected(addresses: list[tuple[str, int]], deadline: float) -> socket.socket:
    problem: OSError = OSError("no address")
    for address in addresses:
        try:
            sock = socket.create_connection(address, max(deadline - time.monotonic(), 0.001))
        except OSError as exc:
            problem = exc
        else:
            _sockets.add(sock)
            return sock
    raise problem


def _pause(said: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, counts as none."""
    with suppress(TypeError, ValueError):
        seconds = float(said)  # type: ignore[arg-type]
        return seconds if 0 <= seconds < float("inf") else None
    return None


def _default_port(parts: SplitResult) -> int:
    return 443 if parts.scheme == "https" else 80


@lru_cache(maxsize=1)
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _let_go() -> None:
    """In a forked child: the call is its parent's."""
    for sock in list(_sockets):
        # close() would wait for the response that reads from it.
        with suppress(OSError):
            os.close(sock.detach())
    _sockets.clear()


os.register_at_fork(after_in_child=_let_go)
