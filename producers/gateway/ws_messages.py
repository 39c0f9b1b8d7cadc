"""What a chat page may send over its WebSocket, checked; docs/websocket.md has the protocol."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

#: Bytes of one frame.
MAX_FRAME = 64 * 1024
_Name = Annotated[str, Field(min_length=1, max_length=255)]
_Token = Annotated[str, Field(max_length=8192)]


class _Frame(BaseModel):
    # A page may be newer than the gateway.
    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class Init(_Frame):
    """The first one. Without a session_id: a new session of the graph."""

    type: Literal["init"]
    graph: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    session_id: _Name | None = None
    last_seq: Annotated[str, Field(max_length=64)] | None = None
    token: _Token | None = Field(None, repr=False)


class Say(_Frame):
    type: Literal["message"]
    content: Annotated[str, Field(min_length=1)]
    message_id: _Name


class Reply(_Frame):
    type: Literal["answer"]
    question_id: _Name
    value: Any
    message_id: _Name


class Cancel(_Frame):
    type: Literal["cancel"]


class Ping(_Frame):
    type: Literal["ping"]


class Auth(_Frame):
    """A newer token of the same user."""

    type: Literal["auth"]
    token: _Token = Field(repr=False)


Frame = Init | Say | Reply | Cancel | Ping | Auth
_TYPES = ("init", "message", "answer", "cancel", "ping", "auth")
_frames: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="type")])


class Refused(Exception):
    """A frame that is refused: the connection goes on. `as_frame` is what the page is told.

    retry: whether the same frame may be taken later. Nothing was done.
    """

    def __init__(self, code: str, message: str, *, retry: bool = False, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry = retry
        self.more = more

    def as_frame(self) -> dict[str, Any]:
        found = {"type": "error", "code": self.code, "message": self.message, "retry": self.retry}
        return {**found, **self.more}


def parsed(text: str | None) -> Frame:
    """The frame; None: it was no text. Raises Refused."""
    if text is None:
        raise Refused("invalid_message", "Send text: a JSON object with a type.")
    # Characters are bytes at least.
    if len(text) > MAX_FRAME or len(text.encode("utf-8", "replace")) > MAX_FRAME:
        raise Refused("too_large", f"The frame has more than {MAX_FRAME} bytes.", limit=MAX_FRAME)
    try:
        found = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as exc:
        raise Refused("invalid_json", f"The frame is no JSON: {exc}.") from None
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise Refused("invalid_message", "A frame is a JSON object with a type.")
    if found["type"] not in _TYPES:
        raise Refused(
            "unknown_type", f"There is no such type. Known: {', '.join(_TYPES)}.", known=_TYPES
        )
    try:
        return _frames.validate_python(found)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_context=False, include_input=False)[0]
        # The first part is the type again.
        where = ".".join(map(str, error["loc"][1:])) or "frame"
        raise Refused("invalid_message", f"{where}: {error['msg']}.", **_name_in(found)) from None


def name_in_text(text: str | None) -> dict[str, Any]:
    """The message_id of a frame that is not looked at further, as a field, if it has one."""
    if text is None or len(text) > MAX_FRAME:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return _name_in(found) if isinstance(found, dict) else {}


def _name_in(found: dict[str, Any]) -> dict[str, Any]:
    name = found.get("message_id")
    return {"message_id": name} if isinstance(name, str) and 0 < len(name) <= 255 else {}


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")
