"""API keys: `fleet_<id>_<secret>`. Shown once, kept as a hash, revoked at once.

The secret has 256 bits of chance, so a plain SHA-256 is all that its hash needs.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..errors import InvalidKey
from ..names import check_tenant, check_text_name
from .principals import Principal, Role, roles_of

if TYPE_CHECKING:
    from .database import Database

_FORM = re.compile(r"fleet_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODYS = bytes(32)


def create(
    database: "Database",
    name: str,
    roles: Iterable[Role],
    *,
    tenant: str = "",
    user: str | None = None,
    days: float | None = None,
) -> tuple[str, dict[str, Any]]:
    """(the key, what is kept of it). days: until it expires; None is never.

    Raises InvalidKey for names that are none, and where neither a role nor a user is given.
    """
    chosen = sorted(set(roles))
    if not chosen and user is None:
        raise InvalidKey("A key without a role is that of a user.", "Give a role, or a user.")
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    row = database.rows_now(
        "create_api_key",
        key_id=key_id,
        hash=_hash(secret),
        tenant=check_tenant(tenant),
        roles=[role.value for role in chosen],
        user_id=None if user is None else check_text_name(user, "user"),
        name=check_text_name(name, "name of the key"),
        days=days,
    )[0]
    return f"fleet_{key_id}_{secret}", row


def listed(database: "Database", *, every: bool = False) -> list[dict[str, Any]]:
    """The keys that are valid; every: those that were, too. Never a hash."""
    return database.rows_now("api_keys", reads=True, all=every)


def revoke(database: "Database", key_id: str) -> dict[str, Any]:
    """From now on it opens nothing. Raises InvalidKey for one that there is not."""
    # The whole key will do: it is what its owner has at hand.
    found = _FORM.fullmatch(key_id)
    named = check_text_name(found[1] if found else key_id, "key's id")
    rows = database.rows_now("revoke_api_key", key_id=named)
    if not rows:
        raise InvalidKey(f"There is no key {named}.", "`fleet keys list --all` shows all of them.")
    return rows[0]


def is_key(token: str) -> bool:
    """Whether a token has the form of a key."""
    return token.startswith("fleet_")


async def principal_of(database: "Database", token: str) -> Principal | None:
    """Whose key it is; None for one that is unknown, wrong, revoked or expired."""
    found = _FORM.fullmatch(token)
    if found is None:
        return None
    row = await database.row("api_key", reads=True, key_id=found[1])
    kept = bytes(row["hash"]) if row else _NOBODYS
    if not hmac.compare_digest(kept, _hash(found[2])) or row is None:
        return None
    return Principal(
        row["tenant"], row["user_id"], roles_of(row["roles"]), row["name"], row["expires_at"]
    )


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
