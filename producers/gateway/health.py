"""Probes: whether the process lives, and whether it can serve."""

from typing import Any, Literal

import redis
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from infra.errors import FleetError
from infra.migrate import require_migrated

from ..errors import ProducerError

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/healthz")
async def healthz() -> Health:
    """The process lives. Nothing else is looked at."""
    return Health()


class Check(BaseModel):
    name: str
    ok: bool
    detail: str


class Readiness(BaseModel):
    """`warnings` are of what it can do without."""

    status: Literal["ready", "not ready"]
    checks: list[Check]
    warnings: list[str]


@router.get(
    "/readyz",
    response_model=Readiness,
    responses={503: {"model": Readiness, "description": "It can't serve."}},
)
async def readyz(request: Request) -> Response:
    """200 when it can serve: Postgres answers and is migrated. A broker that is away is a
    warning: what is accepted is kept, and goes on when it is back."""
    state = request.app.state
    checks = [
        await state.fleets.call(_checked, "postgres", lambda: _postgres(state.database)),
        await state.fleets.call(_checked, "broker", lambda: _broker(state.settings.redis_url)),
    ]
    ready = checks[0]["ok"] and not state.closing.is_set()
    told = {
        "status": "ready" if ready else "not ready",
        "checks": checks,
        "warnings": [check["detail"] for check in checks[1:] if not check["ok"]],
    }
    return JSONResponse(told, 200 if ready else 503)


def _checked(name: str, look: Any) -> dict[str, Any]:
    try:
        look()
    except (FleetError, ProducerError) as exc:
        return {"name": name, "ok": False, "detail": exc.message}
    except (redis.RedisError, OSError):
        return {"name": name, "ok": False, "detail": "The broker is not reachable."}
    return {"name": name, "ok": True, "detail": "reachable"}


def _postgres(database: Any) -> None:
    database.run_now(require_migrated)


def _broker(url: str | None) -> None:
    if url is None:
        raise OSError("no address")
    with redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2) as client:
        client.ping()
