"""Messages in the queue that are no wake-ups: set aside with their reason, and the next one taken.

Anybody can write to a broker's list, and what is written there can end a worker: kombu 5.7
raises out of its event loop on an item that is no JSON or lacks a part of the envelope,
Celery 5.7 on headers and bodies of another shape than its own (a time limit that is a
number, a body of two items), and other ones lose it a slot. So each item is read where it
is popped. What names a thread is handed on as a wake-up written anew, so nothing of the
rest reaches kombu or Celery; all else goes to ``fleet.rejected_wakeups``, and looks to kombu
like an empty queue. A wake-up holds nothing that can be lost.
"""

import base64
import logging
from typing import Annotated, Any, Literal

import psycopg
from celery import bootsteps
from kombu.utils.json import loads
from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from infra.errors import FleetError
from infra.postgres import connect
from infra.settings import get_settings
from infra.sql import query
from producers.errors import InvalidKey
from producers.messages import split_thread_id
from producers.wakeup import TASK, VERSION, message

log = logging.getLogger("fleet.rejects")

#: Characters of a reason and of a body that are kept.
_LONGEST = 4000


def set_aside(reason: str, body: Any) -> None:
    """Record a message that can't be served. When that fails the log has the reason: no error."""
    reason = _text(reason)
    log.error("a message in the queue was set aside: %s", reason)
    try:
        with connect(get_settings().require_postgres(), "fleet-rejects") as conn:
            conn.execute(query("reject_wakeup"), {"reason": reason, "body": _text(body)})
    except (psycopg.Error, FleetError) as exc:
        log.error("it could not be recorded: %s", str(exc).strip())


def _text(value: Any) -> str:
    """As Postgres can store it: no NUL, no lone surrogates."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:_LONGEST].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


# Where an item is popped


class Screen(bootsteps.StartStopStep):  # type: ignore[misc]
    """Stands between the broker and kombu; started anew with each connection."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        """Look at each reply of the client that pops, before kombu does."""
        channel = consumer.task_consumer.channel
        parse = channel.client.response_callbacks["BRPOP"]

        def look(reply: Any, **options: Any) -> tuple[bytes, bytes] | None:
            popped = parse(reply, **options)
            if not popped:
                return None
            key, item = popped
            try:
                thread_id = read(item)
            except NotAWakeUp as problem:
                set_aside(str(problem), item)
                return None
            # kombu's key of a queue; at another priority than the first it has a suffix.
            queue = key.decode().partition(channel.sep)[0]
            return key, message(queue, thread_id).encode()

        channel.client.set_response_callback("BRPOP", look)


# What a wake-up is


class NotAWakeUp(Exception):
    """Why an item can't be served."""


class _Part(BaseModel):
    """Extra fields are nobody's business: they are not handed on."""

    model_config = ConfigDict(extra="ignore")


Text = Annotated[str, Strict(), Field(min_length=1)]


class _Destination(_Part):
    exchange: Annotated[str, Strict()]
    routing_key: Text


class _Properties(_Part):
    delivery_tag: Text
    delivery_info: _Destination
    body_encoding: Literal["base64"]


class _Headers(_Part):
    """A wake-up that names a time is refused: due times live in Postgres, and a time limit
    would end the process in the middle of a turn."""

    task: Literal["fleet.turns"]
    id: Text
    eta: None = None
    expires: None = None
    timelimit: tuple[None, None] | None = None
    compression: None = None


class _Envelope(_Part):
    """Celery's message protocol 2 as kombu's Redis transport stores it."""

    content_type: Literal["application/json"] = Field(alias="content-type")
    content_encoding: Literal["utf-8"] = Field(alias="content-encoding")
    headers: _Headers
    properties: _Properties
    body: Text


_Body = TypeAdapter(tuple[list[Any], dict[str, Any], dict[str, Any]])


def read(item: bytes) -> str:
    """The thread that the wake-up names. Raises NotAWakeUp, and nothing else."""
    try:
        envelope = _Envelope.model_validate(_json(item, "it"))
    except ValidationError as exc:
        raise NotAWakeUp(f"it is no wake-up: {_first(exc)}") from None
    try:
        body = base64.b64decode(envelope.body, validate=True)
    except ValueError as exc:
        raise NotAWakeUp(f"its body is not base64: {exc}") from None
    try:
        args, kwargs, _ = _Body.validate_python(_json(body, "its body"))
    except ValidationError as exc:
        raise NotAWakeUp(f"its body does not hold arguments: {_first(exc)}") from None
    if len(args) != 1 or kwargs.keys() - {"v"}:
        raise NotAWakeUp(f"{TASK} takes one argument, the thread's id")
    if (version := kwargs.get("v", VERSION)) != VERSION:
        raise NotAWakeUp(f"version {version!r} of a wake-up is not known: is this worker too old?")
    try:
        split_thread_id(args[0])
    except InvalidKey as exc:
        raise NotAWakeUp(f"its argument can't be a thread: {exc}") from None
    thread_id: str = args[0]
    return thread_id


def _json(text: bytes, what: str) -> Any:
    try:
        return loads(text.decode())
    except Exception as exc:
        # Nesting too deep, or kombu's own types, whose makers raise what they like.
        raise NotAWakeUp(f"{what} is not JSON: {exc}") from None


def _first(exc: ValidationError) -> str:
    """Where the first fault is and which; nothing of what was there."""
    error = exc.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in error["loc"])
    return f"{place}: {error['msg']}" if place else error["msg"]
