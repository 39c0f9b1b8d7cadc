"""Which web pages may talk to the gateway.

A browser names the page that a request comes from. Programs send no Origin and are not
meant here. Without authentication the Host is looked at too: a page that had its own name
resolve to this machine would else be taken for one of the gateway's.
"""

from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from infra.settings import Settings

from .problems import Problem

_PORTS = {"http": 80, "https": 443}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed(connection: HTTPConnection, settings: Settings) -> bool:
    """Whether its Origin is none, the gateway's own, or one of FLEET_ALLOWED_ORIGINS."""
    if not host_known(connection, settings):
        return False
    origin = connection.headers.get("origin")
    if origin is None:
        return True
    page = _place(origin)
    if page is None:
        return False  # "null": a sandboxed page or a file
    own = _place(f"{page.scheme}://{connection.headers.get('host', '')}")
    return page == own or str(page) in named(settings)


def named(settings: Settings) -> frozenset[str]:
    """The origins that the settings name."""
    given = [*settings.allowed_origins.split(","), settings.public_url or ""]
    return frozenset(str(page) for page in map(_place, given) if page is not None)


def require(connection: HTTPConnection, settings: Settings) -> None:
    """Raise a Problem, 403, for a page that may not do this."""
    if not host_known(connection, settings):
        raise Problem(
            403,
            "unknown_host",
            "Unknown host",
            "Without authentication the gateway answers to this machine's own names only.",
            "Use http://127.0.0.1, or set FLEET_PUBLIC_URL.",
        )
    if connection.scope.get("method") in _SAFE:
        return
    if not allowed(connection, settings):
        raise Problem(
            403,
            "foreign_origin",
            "Foreign origin",
            "This page may not talk to the gateway.",
            "Its operator can name it in FLEET_ALLOWED_ORIGINS.",
        )


def host_known(connection: HTTPConnection, settings: Settings) -> bool:
    """Whether its Host is a name of this machine's; looked at without authentication only."""
    if settings.gateway_auth == "on":
        return True
    found = _place(f"http://{connection.headers.get('host', '')}")
    if found is None:
        return False
    public = urlsplit(settings.public_url or "").hostname
    return found.host in _HERE or found.host in (public, settings.gateway_host)


class _Place(NamedTuple):
    """Where a page is from. port: None for the scheme's own."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        """As browsers have it: RFC 6454, section 6.1."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + (f":{self.port}" if self.port is not None else "")


def _place(url: str) -> _Place | None:
    """Of an address; None for one that names no host."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not parts.scheme or not host:
        return None
    return _Place(parts.scheme, host, None if port == _PORTS.get(parts.scheme) else port)
