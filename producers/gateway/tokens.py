"""JSON Web Tokens: who signed them, for whom, until when, and whose they are.

HS256 with FLEET_JWT_SECRET, or RS256, PS256, ES256 and EdDSA with the keys of
FLEET_JWT_JWKS_URL. Which key a token is checked with is decided by the algorithms that the
key is for, never by the token alone: a public key is no secret of HS256, and `none` is no
algorithm. Claims: `sub`, `tenant` (the default one where there is none) and `roles` (a list,
or names parted by spaces).
"""

import json
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
import jwt
import structlog

from infra.settings import Settings

from ..errors import InvalidKey
from ..names import check_tenant, check_text_name
from .principals import Principal, roles_of
from .problems import Problem

_PUBLIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
#: Seconds that clocks may differ.
_LEEWAY = 5
#: Seconds for which the issuer's keys are kept, between two looks for a key that is not among
#: them, and that it has to answer.
_KEPT, _LOOK_AGAIN, _ANSWERS_WITHIN = 300, 5, 5
_log = structlog.get_logger(__name__)


class Tokens:
    """Checks tokens by the settings; None of them set: takes none."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = None
        if settings.jwt_jwks_url:
            self._keys = jwt.PyJWKClient(
                settings.jwt_jwks_url,
                lifespan=_KEPT,
                timeout=_ANSWERS_WITHIN,
                cooldown_duration=_LOOK_AGAIN,
            )

    async def principal_of(self, token: str) -> Principal | None:
        """Whose token it is; None for one that is not valid, or not any more.

        Raises Problem, 503, while the issuer's keys can't be had.
        """
        try:
            algorithm = jwt.get_unverified_header(token).get("alg")
            if self._settings.jwt_secret and algorithm == "HS256":
                return self._principal(token, self._settings.jwt_secret, ["HS256"])
            if self._keys is None or algorithm not in _PUBLIC:
                return None
            found = await anyio.to_thread.run_sync(self._keys.get_signing_key_from_jwt, token)
            if found.algorithm_name not in _PUBLIC:
                return None
            return self._principal(token, found.key, [found.algorithm_name])
        except (jwt.PyJWKClientConnectionError, OSError, json.JSONDecodeError) as exc:
            _log.warning("jwks_unreachable", error=str(exc))
            raise Problem(
                503,
                "keys_unavailable",
                "Keys unavailable",
                "The issuer's keys, which tokens are checked with, can't be had now.",
                "Try again.",
                headers={"Retry-After": str(_LOOK_AGAIN)},
            ) from None
        except (jwt.PyJWTError, InvalidKey, ValueError, TypeError, OverflowError):
            return None

    def _principal(self, token: str, key: Any, algorithms: list[str]) -> Principal:
        claims = jwt.decode(
            token,
            key,
            algorithms=algorithms,
            issuer=self._settings.jwt_issuer,
            audience=self._settings.jwt_audience,
            leeway=_LEEWAY,
            options={"require": ["exp", "sub", "iss", "aud"]},
        )
        user = check_text_name(claims["sub"], "sub")
        roles = claims.get("roles") or []
        named = roles.split() if isinstance(roles, str) else list(roles)
        return Principal(
            check_tenant(claims.get("tenant") or ""),
            user,
            roles_of(named),
            user,
            _moment(claims["exp"]),
            _moment(claims["iat"]) if "iat" in claims else None,
        )


def _moment(seconds: float) -> datetime:
    """Raises ValueError for what is in no calendar."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except OSError as exc:  # years that the system can't count
        raise ValueError(str(exc)) from None
