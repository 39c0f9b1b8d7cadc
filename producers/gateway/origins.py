"""Which web pages may talk to the gateway.

A browser names the page that a request comes from. Programs send no Origin and are not
meant here. Without authentication the Host is looked at too: a page that had its own name
resolve to this machine would else be taken for one of the gateway's.
"""

from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from infra.settings import Settings

from .problems import Problem

_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed(connection: HTTPConnection, settings: Settings) -> bool:
    """Whether its Origin is none, the gateway's own, or one of FLEET_ALLOWED_ORIGINS."""
    if not host_known(connection, settings):
        return False
    origin = connection.headers.get("origin")
    if origin is None or origin.rstrip("/") in named(settings):
        return True
    parts = urlsplit(origin)
    if not parts.scheme or not parts.netloc:
        return False  # "null": a sandboxed page or a file
    return _place(parts.scheme, parts.netloc) == _place(
        parts.scheme, connection.headers.get("host", "")
    )


def named(settings: Settings) -> frozenset[str]:
    """The origins that the settings name."""
    given = [*settings.allowed_origins.split(","), settings.public_url or ""]
    return frozenset(filter(None, map(_as_browsers_have_it, given)))


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
    host = _place("http", connection.headers.get("host", ""))
    if host is None:
        return False
    public = urlsplit(settings.public_url or "").hostname
    return host[0] in _HERE or host[0] in (public, settings.gateway_host)


def _as_browsers_have_it(url: str) -> str:
    """The origin of an address, as RFC 6454, section 6.1 has it; "" for what has none."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not parts.scheme or not host:
        return ""
    shown = f"[{host}]" if ":" in host else host
    usual = port in (None, _DEFAULT_PORTS.get(parts.scheme))
    return f"{parts.scheme}://{shown}" if usual else f"{parts.scheme}://{shown}:{port}"


def _place(scheme: str, netloc: str) -> tuple[str, int] | None:
    """Host and port; None for what names none."""
    try:
        parts = urlsplit(f"//{netloc}")
        if not parts.hostname:
            return None
        return parts.hostname, parts.port or _DEFAULT_PORTS.get(scheme, 0)
    except ValueError:
        return None
