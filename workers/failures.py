"""Which exceptions out of a graph are worth another attempt: a pure decision.

Effects classify their own failures (graphs.effects); this is for everything else a node
raises, by LangGraph's own default rule for node retries, widened by what the network does.
"""

import httpx
import psycopg
from langgraph._internal._retry import default_retry_on

_NETWORK = (ConnectionError, TimeoutError, httpx.TransportError, psycopg.OperationalError)
_LONGEST = 2000


def transient(exc: BaseException) -> bool:
    """Whether the same turn may succeed later without a change of code or input."""
    if isinstance(exc, _NETWORK):
        return True
    status = getattr(getattr(exc, "response", None), "status_code", None)
    if status in (408, 425, 429):
        return True
    return isinstance(exc, Exception) and default_retry_on(exc)


def describe(exc: BaseException) -> str:
    """One line for people: type and message, cut at 2000 characters, no NUL."""
    text = f"{type(exc).__name__}: {exc}".replace("\x00", "\ufffd").strip()
    return text.encode("utf-8", "replace").decode()[:_LONGEST]
