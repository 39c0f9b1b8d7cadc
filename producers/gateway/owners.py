"""Whose a thread is: who may read it, and who may act on it.

A user may with the threads of their own sessions; with sensitive ones, whatever their roles, only
by a token that is fresh enough (absences). With the other threads of its tenant a role may what
it may. For anybody else a thread does not exist.
"""

from dataclasses import dataclass
from typing import Any

from ..errors import InvalidKey
from ..names import split_thread_id
from ..refusals import unknown_thread
from . import absences
from .auth import Principal, Role, require_role


def is_guest(app_state: Any, principal: Principal, owner: str | None) -> bool:
    """Whether the caller looks on: the thread, whose user is the owner, is not known to be
    theirs."""
    if app_state.settings.gateway_auth == "off":
        return False
    return principal.user is None or principal.user != owner


@dataclass(frozen=True)
class Access:
    """What a caller may with one thread. within: it is of their tenant. own: it is theirs."""

    principal: Principal
    thread_id: str
    within: bool = False
    own: bool = False
    guest: bool = True

    def may(self, role: Role) -> bool:
        """Whether the caller may with it what the role may."""
        return self.own or (self.within and self.principal.may(role))

    def require(self, role: Role) -> None:
        """Raise Problem, 403, for a caller whose roles don't do; UnknownThread for a user to
        whom the thread does not belong."""
        if not self.may(role):
            require_role(self.principal, role)
            raise unknown_thread(self.thread_id)


async def access(app_state: Any, principal: Principal, thread_id: str) -> Access:
    """Postgres is asked for users only, and once. Raises FreshTokenNeeded."""
    try:
        tenant = split_thread_id(thread_id)[0]
    except InvalidKey:
        return Access(principal, thread_id)
    if tenant != principal.tenant:
        return Access(principal, thread_id)
    row = None
    if principal.user is not None:
        row = await app_state.database.row(
            "session_owner", reads=True, thread_id=thread_id, tenant=tenant
        )
    owner = None if row is None else row["user_id"]
    own = owner is not None and owner == principal.user
    if own and row is not None and (seen := row["last_seen_at"]) is not None:
        await absences.require_fresh(app_state, principal, row["absent"], seen)
    guest = is_guest(app_state, principal, owner)
    return Access(principal, thread_id, within=True, own=own, guest=guest)
