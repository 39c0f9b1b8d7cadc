"""What the gateway says when it can't: RFC 9457 problems, `application/problem+json`.

One place maps errors of the producers' tree to them; nothing of a traceback gets out.

    {"type": "urn:problem-type:fleet:unknown_thread", "title": "Unknown thread", "status": 404,
     "detail": "There is no thread refund:A1001.", "code": "unknown_thread",
     "hint": "Submit it first …", "thread_id": "refund:A1001"}
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import psycopg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from infra.errors import FleetError

from ..errors import ProducerError
from ..payloads import shown
from ..sessions import meaning

MEDIA_TYPE = "application/problem+json"
#: Of codes of the producers' errors; others are 400.
_STATUS = {
    "not_configured": 500,
    "fleet_unavailable": 503,
    "outcome_unknown": 503,
    "not_migrated": 503,
    "invalid_key": 400,
    "invalid_payload": 400,
    "invalid_input": 422,
    "unknown_graph": 404,
    "unknown_thread": 404,
    "unknown_checkpoint": 404,
    "unknown_message": 404,
    "thread_exists": 409,
    "message_conflict": 422,
    "question_open": 409,
    "not_in_doubt": 409,
    "thread_busy": 409,
    "nothing_to_do": 409,
    "effect_in_doubt": 409,
    "amendment_refused": 409,
    "wait_timeout": 504,
}
#: Of an answer's refusal, by its reason.
_ANSWER = {
    "no_question": 409,
    "stale_question": 409,
    "already_answered": 409,
    "finished": 409,
    "wrong_shape": 422,
    "expired": 410,
}
#: Seconds after which trying again makes sense.
_RETRY_AFTER = {"fleet_unavailable": 2, "outcome_unknown": 2, "not_migrated": 10}
#: Where Python's own word depends on its version.
_TITLES = {413: "Body too large", 422: "Invalid request"}
_STATUS_HINTS = {
    404: "See /openapi.json for the paths that there are.",
    405: "The header Allow names the methods that this path has.",
}
_log = structlog.get_logger(__name__)


class Problem(Exception):
    """An answer that is no success. `more`: further members; headers: of the response."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        detail: str,
        hint: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail
        self.hint = hint
        self.headers = dict(headers or {})
        self.more = more

    def as_dict(self) -> dict[str, Any]:
        """The members, those of RFC 9457 first."""
        found = {
            "type": f"urn:problem-type:fleet:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
        }
        return {**found, **({"hint": self.hint} if self.hint else {}), **self.more}

    def response(self) -> Response:
        # ASCII: whatever a name holds, a log or a terminal can show it.
        body = json.dumps(self.as_dict(), default=str)
        return Response(body, self.status, self.headers, MEDIA_TYPE)


#: Where the error's own hint is for who works at a terminal.
_ERROR_HINTS = {
    "unknown_thread": "Send its first message, or look: GET /sessions, or for roles GET /threads.",
    "outcome_unknown": "It is not known whether it was done: look, and do it again where not.",
    "nothing_to_do": "Look at it with GET /threads/{graph}/{key}.",
    "unknown_checkpoint": "GET /threads/{graph}/{key}/history lists the thread's checkpoints.",
}


def of_error(error: ProducerError) -> Problem:
    """The problem that an error of the producers' tree is."""
    status = _STATUS.get(error.code, 400)
    more = dict(error.data)
    if error.code == "answer_refused":
        status = 404 if more.get("asked") is False else _ANSWER[more["reason"]]
    wait = _RETRY_AFTER.get(error.code)
    return Problem(
        status,
        error.code,
        error.code.replace("_", " ").capitalize(),
        error.message,
        _hint(error),
        headers={"Retry-After": str(wait)} if wait else None,
        **{name: value for name, value in more.items() if name not in _MEMBERS},
        **({"thread_status": more["status"]} if "status" in more else {}),
    )


def _hint(error: ProducerError) -> str:
    own = error.hint == error.default_hint
    return _ERROR_HINTS.get(error.code, error.hint) if own else error.hint


_MEMBERS = frozenset({"type", "title", "status", "detail", "code", "hint", "headers"})


def unknown_path(path: str) -> Problem:
    return _http(404, f"There is nothing at {shown(path, 200)}.")


def _http(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Problem:
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    code = title.lower().replace(" ", "_").replace("-", "_")
    return Problem(status, code, title, detail, _STATUS_HINTS.get(status, ""), headers=headers)


def install(app: FastAPI) -> None:
    """Let every error of the app come out as a problem."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(ProducerError, _on_producer_error)
    app.add_exception_handler(FleetError, _on_fleet_error)
    app.add_exception_handler(psycopg.Error, _on_postgres_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


async def _on_problem(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, Problem)
    return exc.response()


async def _on_producer_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ProducerError)
    return of_error(exc).response()


async def _on_fleet_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, FleetError)
    _log.error("gateway_error", code=exc.code, error=exc.message)
    detail = "The fleet can't do it now; its operator finds the reason in the gateway's log."
    return Problem(503, exc.code, "Unavailable", detail, headers={"Retry-After": "5"}).response()


async def _on_postgres_error(_: Request, exc: Exception) -> Response:
    """Of what was only read: Sessions has translated the rest."""
    assert isinstance(exc, psycopg.Error)
    return of_error(meaning(exc)).response()


async def _on_http(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    if exc.status_code == 404:
        return unknown_path(request.url.path).response()
    texts = {
        405: f"{request.method} is no method of {shown(request.url.path, 200)}.",
        413: "The body is larger than the gateway takes.",
        400: "The body can't be read: it is no JSON, or nested too deeply.",
    }
    detail = texts.get(exc.status_code, str(exc.detail))
    return _http(exc.status_code, detail, exc.headers).response()


async def _on_invalid(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    found = exc.errors()
    if any(error["type"] == "json_invalid" for error in found):
        why = str(found[0].get("ctx", {}).get("error", "")) or "it is no JSON"
        return Problem(
            400, "invalid_json", "Invalid JSON", f"The body is no JSON: {why}."
        ).response()
    # Not what was given: it may be a secret.
    errors = [{"at": ".".join(map(str, error["loc"])), "reason": _reason(error)} for error in found]
    first = errors[0]
    detail = f"{first['at']}: {first['reason']}."
    return Problem(422, "invalid_request", "Invalid request", detail, errors=errors).response()


def _reason(error: Mapping[str, Any]) -> str:
    return str(error["msg"]).removeprefix("Value error, ").rstrip(".")


class LastResort:
    """ASGI middleware: what nothing else has caught is logged and answered with a plain 500."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noted(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception:
            # What follows there is a one-time link's token.
            path = scope["path"].partition("/answer/")[0]
            _log.exception("gateway_fault", path=path)
            if begun:
                raise
            detail = "The gateway failed; its operator finds the reason in its log."
            problem = Problem(500, "internal_error", "Internal error", detail)
            await problem.response()(scope, receive, send)
