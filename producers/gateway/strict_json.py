"""Routes that know who calls before they read a body, and bodies that mean one thing: no key
twice, no NaN, which JSON does not have.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from ..payloads import once_each
from .auth import identified


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        try:
            return json.loads(body, object_pairs_hook=once_each, parse_constant=_refuse)
        except json.JSONDecodeError:
            raise
        except ValueError as exc:
            # Not UTF-8, a number of too many digits, or one of ours.
            raise json.JSONDecodeError(_said(exc), "", 0) from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"it has no {name}")


def _said(exc: ValueError) -> str:
    if isinstance(exc, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(exc).partition(":")[0]


class StrictRoute(APIRoute):
    """`APIRouter(route_class=StrictRoute)`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            await identified(request)
            return await handle(_StrictRequest(request.scope, request.receive))

        return handler
