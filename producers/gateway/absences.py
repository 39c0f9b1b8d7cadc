"""Sensitive sessions that were left alone: their users sign in again before anything of the
thread is given or done. How a session stands, and one-time links, are not asked for it.

Left alone is one whose user was away for longer than the reconnect window, or has not been
there since the broker lost its memory, as in a restart of everything. Fresh is a token that was
made since the user was there last. Others, whom a role lets in, are not asked; but for a session
without a user it is the page that was left alone: there /ws asks whoever opens it.
"""

from datetime import datetime, timedelta
from typing import Any

from .auth import Principal
from .problems import Problem

#: A token says to the second when it was made.
_ROUNDED = timedelta(seconds=1)


class FreshTokenNeeded(Problem):
    """401: the token was good, and is too old for this session."""

    def __init__(self) -> None:
        super().__init__(
            401,
            "fresh_token_needed",
            "Fresh token needed",
            "This session is sensitive and was left alone: sign in again to go on with it.",
            "Send a token that was made since, or open the session over /ws, which asks for it.",
            # RFC 9470, section 3.
            headers={
                "WWW-Authenticate": 'Bearer realm="fleet", error="insufficient_user_authentication"'
            },
        )


async def left_alone(app_state: Any, absent: float, last_seen_at: datetime) -> bool:
    """Whether a sensitive session was. absent: for how many seconds nobody has been there."""
    if app_state.settings.gateway_auth == "off":
        return False
    if absent > app_state.settings.reconnect_window:
        return True
    remembers_from = await app_state.broker_memory.since()
    return remembers_from is None or last_seen_at < remembers_from


async def require_fresh(
    app_state: Any, principal: Principal, absent: float, last_seen_at: datetime
) -> None:
    """Raise FreshTokenNeeded where a sensitive session was left alone and the token is older."""
    if is_fresh(principal, last_seen_at):
        return
    if await left_alone(app_state, absent, last_seen_at):
        raise FreshTokenNeeded


def is_fresh(principal: Principal, last_seen_at: datetime) -> bool:
    """Whether the token was made since then. A key, and a token that does not say when it was
    made, never is."""
    issued = principal.issued_at
    return issued is not None and issued > last_seen_at - _ROUNDED
