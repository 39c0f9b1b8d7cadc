"""Whose a thread is: who may read it, and who may act on it.

A role may what it may with all threads of its tenant. A user without one may with the threads
of their own sessions; of sensitive ones only with a token that is fresh enough (absences). For
anybody else a thread does not exist.
"""

from typing import Any

from ..errors import InvalidKey
from ..names import split_thread_id
from . import absences
from .auth import Principal, Role


async def may_read(app_state: Any, principal: Principal, thread_id: str) -> bool:
    """Whether the caller may see the thread; else it does not exist for them. Raises
    FreshTokenNeeded."""
    return await _may(app_state, principal, thread_id, (Role.viewer,))


async def may_act(
    app_state: Any,
    principal: Principal,
    thread_id: str,
    *roles: Role,
) -> bool:
    """Whether the caller may act on the thread. roles: those of which one is enough; without,
    producer or approver. Raises FreshTokenNeeded."""
    return await _may(app_state, principal, thread_id, roles or (Role.producer, Role.approver))


async def _may(app_state: Any, principal: Principal, thread_id: str, roles: Any) -> bool:
    try:
        tenant = split_thread_id(thread_id)[0]
    except InvalidKey:
        return False
    if tenant != principal.tenant:
        return False
    if any(principal.may(role) for role in roles):
        return True
    if principal.user is None:
        return False
    row = await app_state.database.row(
        "session_owner", reads=True, thread_id=thread_id, tenant=tenant
    )
    if row is None or row["user_id"] != principal.user:
        return False
    seen = row["last_seen_at"]
    if seen is None or absences.is_fresh(principal, seen):
        return True
    if await absences.left_alone(app_state, row["absent"], seen):
        raise absences.FreshTokenNeeded
    return True
