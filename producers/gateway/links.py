"""One-time links that answer a question.

Whoever has the link may answer, as the person that it was sent to. Opening it changes nothing:
mail scanners and chats open links by themselves. Only the token's hash is stored, and its
message_id is made of it, so a link answers once however often it is sent, whatever dies in
between (the same answer again is told that it counted).
"""

import hashlib
import json
import re
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse, Response

from ..errors import AnswerRefused, InvalidPayload, MessageConflict, ProducerError
from ..payloads import once_each
from ..status import Receipt
from . import link_pages
from .link_forms import answer_of
from .problems import Problem

router = APIRouter(tags=["links"], include_in_schema=False)

_TOKEN = re.compile(r"[A-Za-z0-9_-]{22,128}")
_UNKNOWN = "This link is none, or what it asked has been removed."
_CLOSED = {
    "expired": ("Too late", "Nobody answered in time: this question is closed."),
    "superseded": ("Not asked any more", "This question is not open any more."),
}
#: Of a refusal, by its reason; 409 where nothing else is said.
_STATUS = {"expired": 410, "wrong_shape": 422}

Token = Annotated[str, Path(max_length=200)]


@router.get("/answer/{token}")
async def show(token: Token, request: Request) -> Response:
    """The question with its form, or what became of it."""
    try:
        seen = await _seen(request.app.state, token)
    except ProducerError:
        return _not_now()
    if seen is None:
        return link_pages.tell("Unknown link", _UNKNOWN, 404)
    if seen["state"] == "open":
        return link_pages.ask(seen)
    if seen["state"] == "answered":
        return link_pages.tell("Answered", _answered(seen), 410)
    return link_pages.tell(*_CLOSED[seen["state"]], 410)


@router.post("/answer/{token}")
async def answer(token: Token, request: Request) -> Response:
    """Answer it: a form of the page's, or ``{"value": …}`` as JSON, which gives a receipt."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    state = request.app.state
    if kind == "application/json":
        return await _answer_as_json(state, await _seen(state, token), token, await _value(request))
    try:
        return await _answer_as_form(state, token, await request.body())
    except ProducerError:
        return _not_now()


async def _answer_as_form(state: Any, token: str, body: bytes) -> Response:
    seen = await _seen(state, token)
    if seen is None:
        return link_pages.tell("Unknown link", _UNKNOWN, 404)
    if seen["state"] == "superseded":
        return link_pages.tell(*_CLOSED["superseded"], 410)
    try:
        await _give(state, seen, token, answer_of(seen, _fields(body)))
    except (AnswerRefused, InvalidPayload) as refused:
        return await _refused(state, token, refused)
    except MessageConflict:
        return link_pages.tell("Used already", _answered(seen), 409)
    return link_pages.tell("Thank you", f"Your answer to {seen['thread_id']} counts.")


def _not_now() -> Response:
    """What was sent may have counted; sent again it counts once."""
    return link_pages.tell(
        "Not now", "The fleet can't be reached. Come back to this link in a moment.", 503
    )


async def _answer_as_json(state: Any, seen: Any, token: str, value: Any) -> Response:
    if seen is None:
        raise Problem(404, "unknown_link", "Unknown link", _UNKNOWN)
    if seen["state"] == "superseded":
        raise Problem(410, "link_closed", *_CLOSED["superseded"])
    try:
        receipt = await _give(state, seen, token, value)
    except MessageConflict:
        raise Problem(409, "link_used", "Used already", _answered(seen)) from None
    return JSONResponse(receipt.model_dump(mode="json"), 202)


async def _seen(state: Any, token: str) -> dict[str, Any] | None:
    """The question behind it, or None."""
    if _TOKEN.fullmatch(token) is None:
        return None
    row = await state.database.row("link_seen", reads=True, hash=_hash(token))
    found: dict[str, Any] | None = row and row["link"]
    return found


async def _give(state: Any, seen: dict[str, Any], token: str, value: Any) -> Receipt:
    receipt: Receipt = await state.fleets.call(
        state.fleets.of(seen["tenant"]).answer,
        seen["thread_id"],
        seen["question_id"],
        value,
        message_id=f"link-{_hash(token).hex()}",
        answered_by=f"link:{seen['channel']}",
    )
    return receipt


async def _refused(state: Any, token: str, refused: AnswerRefused | InvalidPayload) -> Response:
    reason = refused.reason if isinstance(refused, AnswerRefused) else "wrong_shape"
    seen = await _seen(state, token)
    if seen is not None and reason == "wrong_shape" and seen["state"] == "open":
        return link_pages.ask(seen, f"{refused.message} {refused.hint}", 422)
    if seen is not None and seen["state"] == "answered":
        return link_pages.tell("Answered already", _answered(seen), 409)
    return link_pages.tell("Too late", refused.message, _STATUS.get(reason, 409))


def _answered(seen: dict[str, Any]) -> str:
    if seen["spent"]:
        return "This link has been used: the answer that it gave counts."
    by = f" by {seen['answered_by']}" if seen["answered_by"] else ""
    return f"It was answered{by} at {link_pages.moment(seen['answered_at'])}; that answer counts."


def _fields(body: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise InvalidPayload("The form can't be read.", "Send it again.") from None


async def _value(request: Request) -> Any:
    try:
        found = json.loads(await request.body(), object_pairs_hook=once_each)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.keys() != {"value"}:
        raise Problem(422, "invalid_request", "Invalid request", 'The body is {"value": …}.')
    return found["value"]


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
