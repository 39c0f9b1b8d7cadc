"""Who calls: an API key or a JSON Web Token, as `Authorization: Bearer …`.

@router.get("/threads")
async def threads(caller: Caller, request: Request) -> …:
    caller.require(Role.viewer)
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from . import keys
from .principals import ANYBODY, Principal, Role
from .problems import Problem

__all__ = ["Caller", "Principal", "Role", "Unauthorized", "authenticate", "require_role"]

_LONGEST_TOKEN = 8192


class Unauthorized(Problem):
    """401: no token, or none that is valid."""

    def __init__(self, detail: str, *, given: bool) -> None:
        challenge = 'Bearer realm="fleet"' + (', error="invalid_token"' if given else "")
        super().__init__(
            401,
            "unauthorized",
            "Unauthorized",
            detail,
            "Send `Authorization: Bearer …` with an API key (`fleet keys create`) or a token.",
            headers={"WWW-Authenticate": challenge},
        )


async def authenticate(app_state: Any, token: str | None) -> Principal:
    """Whose token it is. Raises Unauthorized, FleetUnavailable, Problem (503)."""
    if app_state.settings.gateway_auth == "off":
        return ANYBODY
    if not token:
        raise Unauthorized("The gateway has to know who calls.", given=False)
    if len(token) > _LONGEST_TOKEN or not token.isascii():
        raise Unauthorized("The token is none.", given=True)
    if keys.is_key(token):
        found = await keys.principal_of(app_state.database, token)
    else:
        found = await app_state.tokens.principal_of(token)
    if found is None or expired(found):
        raise Unauthorized("The token is unknown, not valid any more, or not for us.", given=True)
    return found


def expired(principal: Principal) -> bool:
    """Whether it is nobody any more."""
    return principal.expires_at is not None and principal.expires_at <= datetime.now(UTC)


def require_role(principal: Principal, role: Role) -> None:
    """Raise a Problem, 403, where the caller has roles and none that may this. It says nothing
    of any thread."""
    if principal.roles and not principal.may(role):
        raise Problem(
            403,
            "forbidden",
            "Forbidden",
            f"{principal.name} may not do this: it takes the role {role} or operator.",
            roles=sorted(principal.roles),
        )


_bearer = HTTPBearer(
    auto_error=False, description="An API key of `fleet keys create`, or a JSON Web Token."
)


async def identified(request: Request) -> Principal:
    """Who sends the request, counted as one of theirs; looked up once for each.

    Raises Unauthorized, FleetUnavailable, Problem (429, 503).
    """
    known: Principal | None = getattr(request.state, "principal", None)
    if known is None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else None
        known = await authenticate(request.app.state, given)
        if known is not ANYBODY:
            request.app.state.limits.require(known)
        request.state.principal = known
    return known


async def _caller(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    return await identified(request)


#: The one who calls, as a parameter of a route.
Caller = Annotated[Principal, Depends(_caller)]
