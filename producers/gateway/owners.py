"""Whose a thread is: who may read it, and who may act on it."""

from typing import Any

from ..errors import InvalidKey
from ..names import split_thread_id
from .auth import Principal, Role


async def may_read(app_state: Any, principal: Principal, thread_id: str) -> bool:
    """Whether the caller may see the thread; else it does not exist for them."""
    return _own_tenant(principal, thread_id) and principal.may(Role.viewer)


async def may_act(app_state: Any, principal: Principal, thread_id: str) -> bool:
    """Whether the caller may send to the thread, answer its questions and cancel it."""
    allowed = principal.may(Role.producer) or principal.may(Role.approver)
    return _own_tenant(principal, thread_id) and allowed


def _own_tenant(principal: Principal, thread_id: str) -> bool:
    try:
        return split_thread_id(thread_id)[0] == principal.tenant
    except InvalidKey:
        return False
