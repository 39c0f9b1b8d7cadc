"""What an exception out of an effect's function says: did it happen, will it get better?

By type and by HTTP status, of whichever client: httpx, requests, aiohttp, openai and
others are told by module and class name, so none of them has to be installed.
"""

import email.utils
import socket
import time
from collections.abc import Iterator
from typing import Any, Literal

from graphs.values import clean_text
from infra.masking import mask_text

#: never_sent: it did not happen, try again. transient: it may have happened, and may
#: succeed later. permanent: refused for good. unknown: says nothing about the outside.
Verdict = Literal["never_sent", "transient", "permanent", "unknown"]

_LONGEST_DETAIL = 500

_NEVER_SENT = {
    ("httpx", "ConnectError"),
    ("httpx", "ConnectTimeout"),
    ("httpx", "PoolTimeout"),
    ("requests", "ConnectTimeout"),
    ("urllib3", "NewConnectionError"),
    ("urllib3", "ConnectTimeoutError"),
    ("aiohttp", "ClientConnectorError"),
}
# What a tool says of itself: it did not do it, and the model is to know why.
_REFUSED = {("langchain_core", "ToolException")}
_NO_TRANSPORT = {("httpx", "UnsupportedProtocol"), ("httpx", "LocalProtocolError")}
_TRANSPORT = {
    ("httpx", "TransportError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("requests", "ChunkedEncodingError"),
    ("urllib3", "HTTPError"),
    ("aiohttp", "ClientConnectionError"),
    ("aiohttp", "ClientPayloadError"),
    ("openai", "APIConnectionError"),
    ("anthropic", "APIConnectionError"),
    ("http", "HTTPException"),
    ("ssl", "SSLError"),
    ("urllib", "URLError"),
    ("smtplib", "SMTPServerDisconnected"),
}


class Transient(Exception):
    """For effects without HTTP: it may have happened, and may succeed later."""

    def __init__(self, detail: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class Permanent(Exception):
    """For effects without HTTP: it did not happen and never will."""


def classify(exc: BaseException, policy: str) -> Verdict:
    """The verdict on one exception. ``policy``: what 409 means depends on whether the
    outside knows our request ids."""
    for cause in _causes(exc):
        if isinstance(cause, Transient):
            return "transient"
        if isinstance(cause, Permanent) or _is(cause, _REFUSED):
            return "permanent"
        if (status := status_of(cause)) is not None:
            return _by_status(status, policy)
        if isinstance(cause, ConnectionRefusedError | socket.gaierror) or _is(cause, _NEVER_SENT):
            return "never_sent"
    if _is(exc, _NO_TRANSPORT):
        return "unknown"
    # TimeoutError and ConnectionError are what the standard library raises.
    if isinstance(exc, ConnectionError | TimeoutError) or _is(exc, _TRANSPORT):
        return "transient"
    return "unknown"


def _by_status(status: int, policy: str) -> Verdict:
    if status in (425, 429):
        return "never_sent"
    if status == 408 or status >= 500:
        return "transient"
    if status == 409:
        return "permanent" if policy == "park" else "transient"
    return "permanent" if status >= 400 else "unknown"


def status_of(exc: BaseException) -> int | None:
    """The HTTP status that an exception carries."""
    response = getattr(exc, "response", None)
    for value in (getattr(response, "status_code", None), getattr(exc, "status_code", None)):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    status = getattr(exc, "status", None)
    return status if isinstance(status, int) and _roots(exc) & {"aiohttp", "urllib"} else None


def retry_after(exc: BaseException) -> float | None:
    """Seconds that the outside asked to wait: Retry-After in seconds or as a date."""
    for cause in _causes(exc):
        if isinstance(cause, Transient):
            return cause.retry_after
        headers = getattr(getattr(cause, "response", None), "headers", None)
        try:
            said = None if headers is None else headers.get("Retry-After")
        except AttributeError:
            said = None
        if said:
            return _seconds(str(said))
    return None


def _seconds(said: str) -> float | None:
    try:
        return min(max(0.0, float(said)), 7 * 86400.0)
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def describe(exc: BaseException) -> str:
    """One line for people, masked, at most 500 characters, with what the outside answered."""
    said = str(exc).strip()
    text = f"{type(exc).__name__}: {said}" if said else type(exc).__name__
    try:
        body = getattr(getattr(exc, "response", None), "text", None)
    except Exception:
        # A streamed response that was not read.
        body = None
    if isinstance(body, str) and body and not callable(body):
        text = f"{text} [{body}]"
    return mask_text(clean_text(" ".join(text.split())))[:_LONGEST_DETAIL]


def _causes(exc: BaseException) -> Iterator[BaseException]:
    """The exception and what it was raised from: clients wrap each other's errors."""
    cause: BaseException | None = exc
    for _ in range(5):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _is(exc: BaseException, kinds: set[tuple[str, str]]) -> bool:
    return any((c.__module__.partition(".")[0], c.__name__) in kinds for c in type(exc).__mro__)


def _roots(exc: Any) -> set[str]:
    return {c.__module__.partition(".")[0] for c in type(exc).__mro__}
