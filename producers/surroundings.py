"""What the full package adds to the thin client: its settings and its failpoints.

In the wheel `threadfleet_client` there is no `infra` of ours (there may be one of
somebody else's), so it is looked for only under our own name.
"""

import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .errors import NotConfigured
from .patience import ANSWER_WITHIN

_IN_FLEET = __package__ == "producers"


def addresses(postgres_url: str | None, redis_url: str | None) -> tuple[str, str | None]:
    """(Postgres, broker or None): as given; all from the environment when Postgres is not."""
    if postgres_url is None:
        found = _settings()
        postgres_url = found("postgres_url")
        redis_url = redis_url or found("redis_url")
    if not postgres_url:
        raise NotConfigured(
            "No Postgres address is set.",
            "Run `fleet up`, or set FLEET_POSTGRES_URL to the fleet's database.",
        )
    return postgres_url, redis_url or None


def answer_within(timeout: float | None, postgres_url: str | None) -> float:
    """Seconds for an answer of Postgres: as given; the setting's where the address is one's too.

    Raises NotConfigured for what is no time.
    """
    found: Any = timeout
    if found is None and postgres_url is None:
        found = _settings()("client_timeout")
    if found is None:
        return ANSWER_WITHIN
    try:
        seconds = float(found)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise NotConfigured(
            f"The client's timeout {found!r} is no number of seconds above 0.",
            "Correct FLEET_CLIENT_TIMEOUT, or what Fleet() is given.",
        )
    return seconds


def _settings() -> Callable[[str], Any]:
    """Our settings by name: infra's in the full package, else the environment's."""
    if _IN_FLEET:
        try:
            settings = import_module("infra.settings").get_settings()
        except ModuleNotFoundError as exc:
            if exc.name not in ("infra", "infra.settings", "pydantic_settings"):
                raise
        else:
            return lambda name: getattr(settings, name)
    return _environment


def _environment(name: str) -> str | None:
    """FLEET_NAME, or the text of the file that FLEET_NAME_FILE names."""
    variable = f"FLEET_{name.upper()}"
    path = os.environ.get(f"{variable}_FILE")
    if os.environ.get(variable) or not path:
        return os.environ.get(variable)
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "it is not UTF-8"
        raise NotConfigured(
            f"The file {path} of {variable}_FILE cannot be read: {reason}.",
            f"Correct {variable}_FILE, or let this user read the file.",
        ) from None


def failpoint(name: str, place: Callable[[], str] | None = None) -> None:
    """infra's failpoint, when it is there and may be armed."""
    if not _IN_FLEET:
        return
    points = sys.modules.get("infra.failpoints")
    if points is None and os.environ.get("FLEET_FAILPOINTS"):
        points = import_module("infra.failpoints")
    if points is not None:
        points.failpoint(name, place)
