"""Who a caller is, and what they may."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a caller may with all threads of its tenant.

    viewer: read. producer: read, submit, send, cancel. approver: read, answer. operator: all.
    """

    producer = "producer"
    approver = "approver"
    operator = "operator"
    viewer = "viewer"


@dataclass(frozen=True)
class Principal:
    """A caller that has shown who it is. expires_at: from then on it is nobody (UTC).
    issued_at: when its token was made, where that says so.

    One without a role is a user, who may only what belongs to them: own sessions and the
    threads of these.
    """

    tenant: str
    user: str | None
    roles: frozenset[Role]
    name: str
    expires_at: datetime | None
    issued_at: datetime | None = None

    def may(self, role: Role) -> bool:
        """Whether it may what the role may."""
        if role is Role.viewer:
            return bool(self.roles)
        return role in self.roles or Role.operator in self.roles


#: Everybody, with FLEET_GATEWAY_AUTH=off.
ANYBODY = Principal("", None, frozenset({Role.operator}), "local", None)


def roles_of(names: Iterable[object]) -> frozenset[Role]:
    """The roles among the names; a token may hold those of other systems too."""
    known = {role.value for role in Role}
    return frozenset(Role(str(name)) for name in names if name in known)
