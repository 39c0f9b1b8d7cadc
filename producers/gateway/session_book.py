"""Sessions of chat pages, as they are in Postgres: nothing of one is a gateway's own.

Their ids can't be guessed, and neither can the keys of their threads.
"""

import secrets
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ..errors import ProducerError
from ..names import check_graph, check_text_name, thread_id
from .database import Database
from .principals import Principal, Role

State = Literal["active", "interrupted", "completed", "cancelled", "failed", "timed_out"]
#: Of an open session, by its thread's status; as fleet.session_state has it.
STATES: dict[str, State] = {
    "waiting": "interrupted",
    "in_doubt": "interrupted",
    "done": "completed",
    "cancelled": "cancelled",
    "failed": "failed",
}
#: Bytes of chance.
_CHANCE = 24


class UnknownSession(ProducerError):
    """There is none, or it is somebody else's: nobody is told which."""

    code = "unknown_session"
    default_hint = "Begin a new one: leave the session_id out."


class Session(BaseModel):
    """absent: for how many seconds nobody has been there. thread_status: None before the first
    message. busy: a turn is under way or due. sensitive: who comes back after a while shows a
    fresh token."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    session_id: str
    tenant: str
    user_id: str | None
    graph: str
    thread_id: str
    state: State
    thread_status: str | None
    busy: bool
    created_at: datetime
    last_seen_at: datetime
    closed_at: datetime | None
    absent: float
    sensitive: bool

    def visible_to(self, principal: Principal) -> bool:
        """Whether it exists for the caller."""
        return self.tenant == principal.tenant and (
            principal.may(Role.viewer) or self.owned_by(principal)
        )

    @property
    def open_to_guests(self) -> bool:
        """Whether others who look on count as being there; as fleet.open_to_guests has it."""
        return self.user_id is None or not self.sensitive

    def owned_by(self, principal: Principal) -> bool:
        """Whether it is the caller's own."""
        return (
            self.user_id is not None
            and self.tenant == principal.tenant
            and self.user_id == principal.user
        )


class SessionBook:
    """Opens and finds them. Each may raise FleetUnavailable, NotMigrated."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, principal: Principal, graph: str) -> Session | None:
        """A new session of the caller's; None where no such graph is registered.

        Raises InvalidKey for what can't be a graph's name.
        """
        name = check_graph(graph)
        row = await self._database.row(
            "open_session",
            reads=True,  # safe to be sent twice: it is known by its id
            session_id=secrets.token_urlsafe(_CHANCE),
            tenant=principal.tenant,
            user_id=principal.user,
            graph=name,
            thread_id=thread_id(name, secrets.token_urlsafe(_CHANCE), principal.tenant),
        )
        return None if row is None or row["session"] is None else _session(row)

    async def find(self, principal: Principal, session_id: str) -> Session:
        """The session, if it exists for the caller. Raises UnknownSession, InvalidKey."""
        name = check_text_name(session_id, "session_id")
        row = await self._database.row("find_session", reads=True, session_id=name)
        found = None if row is None else _session(row)
        if found is None or not found.visible_to(principal):
            raise UnknownSession("There is no such session.")
        return found

    async def reopen(self, session: Session) -> None:
        """Somebody has come back to one that is closed, or may be any moment."""
        await self._database.row("reopen_session", reads=True, session_id=session.session_id)

    async def listed(self, principal: Principal, limit: int) -> list[Session]:
        """The caller's own, or for a role the tenant's; newest first."""
        every = principal.may(Role.viewer)
        if principal.user is None and not every:
            return []
        rows = await self._database.rows(
            "list_sessions",
            reads=True,
            tenant=principal.tenant,
            user_id=None if every else principal.user,
            limit=limit,
        )
        return [_session(row) for row in rows]


def _session(row: dict[str, Any]) -> Session:
    return Session.model_validate(row["session"])
