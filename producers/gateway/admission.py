"""What a caller may do to which thread, and under which names."""

from typing import Any

from ..messages import thread_id as make_thread_id
from ..names import check_graph, check_key, check_message_id, new_message_id
from .auth import Principal, Role
from .owners import Access, access
from .problems import Problem


def thread_of(caller: Principal, graph: str, key: str) -> str:
    """The id of the caller's tenant's thread. Raises InvalidKey."""
    return make_thread_id(check_graph(graph), check_key(key), caller.tenant)


async def readable(state: Any, caller: Principal, graph: str, key: str) -> str:
    """The thread's id. Raises UnknownThread for one that is not for the caller."""
    thread = thread_of(caller, graph, key)
    await allow(state, caller, thread, Role.viewer)
    return thread


async def allow(state: Any, caller: Principal, thread: str, *roles: Role) -> Access:
    """What the caller has of the thread. Raise Problem, 403, for one whose roles don't do, each
    of these; UnknownThread for a user to whom the thread does not belong; FreshTokenNeeded for
    one to whom it does, where it was left alone and the token is older."""
    found = await access(state, caller, thread)
    for role in roles:
        found.require(role)
    return found


def require_operator(caller: Principal) -> None:
    """Raise Problem, 403, for others: for a thread's owner too, since what is done by force may
    happen twice outside."""
    if not caller.may(Role.operator):
        raise Problem(
            403, "forbidden", "Forbidden", f"{caller.name} may not use force: operators may."
        )


def message_name(given: str | None, *, required: bool) -> str:
    """The Idempotency-Key, with the quotes of a structured header taken off."""
    if given is None:
        if required:
            raise Problem(
                400,
                "missing_idempotency_key",
                "Missing Idempotency-Key",
                "A start needs a name, so that it counts once however often it is sent.",
                "Send a header such as `Idempotency-Key: order-A1001`.",
            )
        return new_message_id()
    quoted = len(given) > 1 and given[0] == given[-1] == '"'
    return check_message_id(given[1:-1] if quoted else given)


def answered_by(caller: Principal, given: str | None) -> str:
    """A user, whatever is given; else the service, and whom it names."""
    if caller.user is not None:
        return caller.user
    return f"{given} ({caller.name})" if given else caller.name
