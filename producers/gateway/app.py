"""The gateway as an ASGI app.

`app.state` has what every door needs: settings, fleets, database, tokens, limits, hub,
presence, broker_memory, and `closing`, an event that is set when the process is told to end:
streams end then.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from infra.settings import Settings

from ..live import Hub
from . import agui, health, links, origins, page, problems, rest, sessions, ws
from .bodies import BodyLimit
from .broker_memory import BrokerMemory
from .database import Database
from .fleets import Fleets
from .in_flight import InFlight
from .limits import Limits
from .openapi import document
from .paths import EncodedSlashes
from .presence import Presence
from .tokens import Tokens

_ROUTERS = (health, rest, agui, ws, sessions, links, page)


def create_app(settings: Settings) -> FastAPI:
    """The app; it connects to nothing before the first request needs it."""
    app = FastAPI(
        title="Threadfleet",
        description="Hands work to the fleet, answers its questions and looks on.",
        version="1",
        lifespan=_lifespan,
        # Swagger's page comes from somebody else's server.
        docs_url=None,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.tokens = Tokens(settings)
    app.state.limits = Limits(settings)
    app.state.in_flight = InFlight()
    app.state.closing = anyio.Event()
    problems.install(app)
    for module in _ROUTERS:
        app.include_router(module.router)
    app.openapi = partial(document, app)  # type: ignore[method-assign]
    # The last one added is the first to see a request.
    app.add_middleware(EncodedSlashes)
    app.add_middleware(BodyLimit, most=settings.gateway_body)
    app.add_middleware(_OriginChecked, settings=settings)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=sorted(origins.named(settings)),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"],
        expose_headers=["Location", "Retry-After"],
    )
    app.add_middleware(problems.LastResort)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    state = app.state
    settings: Settings = state.settings
    state.fleets = Fleets(settings)
    state.database = Database(settings.require_postgres(), settings.client_timeout)
    state.presence = Presence(state.database)
    await state.presence.start()
    state.broker_memory = BrokerMemory(settings.redis_url, state.database, state.presence.say_all)
    await state.broker_memory.start()
    state.hub = Hub(settings)
    await state.hub.start()
    try:
        yield
    finally:
        state.closing.set()
        await state.hub.aclose()
        await state.presence.aclose()
        await state.broker_memory.aclose()
        state.database.close()
        state.fleets.close()


class _OriginChecked:
    """Pages of others may change nothing; WebSockets look for themselves."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                origins.require(Request(scope), self._settings)
            except problems.Problem as problem:
                await problem.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)
