"""Messages in the queue that are no wake-ups: set aside with their reason, and the next one taken.

Anybody can write to a broker's list. kombu and Celery log most of what they can't read and
drop it, but some of it ends the worker: an item that is no JSON or lacks what kombu's Redis
transport takes for granted raises out of the event loop (kombu 5.7), as does a message
without an id (Celery 5.7). So it is looked at before they use it: each item where it is
popped, in :class:`Channel`, and each message where it is received, in :class:`Consumer`.
Both put it in ``fleet.rejected_wakeups``; a wake-up holds nothing that can be lost.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty
from typing import Any

import psycopg
from celery.worker.consumer import Consumer as CeleryConsumer
from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import loads
from kombu.utils.objects import cached_property
from redis.exceptions import ConnectionError

from infra import metrics
from infra.errors import FleetError
from infra.masking import mask_text
from infra.postgres import connect
from infra.settings import get_settings
from infra.sql import query
from producers.errors import InvalidKey
from producers.messages import split_thread_id
from producers.wakeup import TASK, VERSION

log = logging.getLogger("fleet.rejects")

#: Characters of a reason and of a body that are kept.
_LONGEST = 4000
#: Bytes of a message; a wake-up has less than a thousandth of it.
_LARGEST = 1024 * 1024
#: What a message may ask Celery to do when its task has ended.
_AFTERWARDS = ("callbacks", "errbacks", "chain", "chord")
#: What a body or a header of any shape may raise in code that expects another.
_MISFITS = (LookupError, TypeError, ValueError, AttributeError)


def set_aside(reason: str, body: Any) -> None:
    """Record a message that can't be served. When that fails the log says so: no error."""
    _record(*_told(reason, body))


def _set_aside_meanwhile(reason: str, body: Any) -> None:
    """As set_aside, for Celery's event loop, which must not wait for Postgres."""
    _recorder.submit(_record, *_told(reason, body))


_recorder = ThreadPoolExecutor(1, "fleet-rejects")


def _told(reason: str, body: Any) -> tuple[str, str]:
    reason, body = mask_text(_text(reason)), mask_text(_text(body))
    log.error("a message in the queue was set aside: %s", reason)
    metrics.rejected()
    return reason, body


def _record(reason: str, body: str) -> None:
    try:
        with connect(get_settings().require_postgres(), "fleet-rejects") as conn:
            conn.execute(query("reject_wakeup"), {"reason": reason, "body": body})
    except (psycopg.Error, FleetError) as exc:
        # Not its body: anything may be in it.
        log.error("it could not be recorded, and is gone: %s", str(exc).strip())


def _text(value: Any) -> str:
    """As Postgres can store it: no NUL, no lone surrogates."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text[:_LONGEST].replace("\x00", "\ufffd").encode("utf-8", "replace").decode()


# Where an item is popped


class Channel(redis.Channel):
    """kombu's channel, but for items that it could not make a message of."""

    @cached_property
    def client(self) -> Any:
        """The client that pops. A reply of None is an empty queue to kombu."""
        client = super().client
        client.set_response_callback("BRPOP", self._popped)
        return client

    def _popped(self, reply: Any, **_: Any) -> tuple[bytes, bytes] | None:
        if not reply:
            return None
        queue, item = reply
        if problem := self._problem(item):
            _set_aside_meanwhile(problem, item)
            return None
        return queue, item

    def _problem(self, item: bytes) -> str | None:
        """Why kombu can't, or must not, make a message of the item."""
        if len(item) > _LARGEST:
            return f"it has {len(item)} bytes, {_LARGEST} are allowed"
        try:
            payload = loads(bytes_to_str(item))  # type: ignore[no-untyped-call]
        except Exception as exc:
            return f"it is not JSON: {exc}"
        try:
            properties = payload["properties"]
            found = properties["delivery_info"]
            fits = (
                isinstance(properties["delivery_tag"], str)
                # A lone surrogate can't be sent to Redis, and kombu sends the tag.
                and properties["delivery_tag"].isascii()
                and isinstance(found["exchange"], str)
                and isinstance(found["routing_key"], str)
                and isinstance(payload.get("headers") or {}, dict)
            )
            if fits and _compressed(payload):
                return _COMPRESSED
            body = fits and self.Message(payload, channel=self).body  # type: ignore[no-untyped-call]
        except Exception as exc:
            return f"it is no Celery message: {type(exc).__name__}: {exc}"
        if not isinstance(body, str | bytes):
            return "it is no Celery message: its properties, headers or body have another form"
        return None

    def close(self) -> None:
        """kombu's; over a connection that is gone nothing can be put back."""
        if self._gone:
            self.do_restore = False
        super().close()  # type: ignore[no-untyped-call]

    @property
    def _gone(self) -> bool:
        return self.connection is None or self.connection.client is None

    def _connparams(self, asynchronous: bool = False) -> Any:
        """kombu's; a connection that was lost is known as such. It raises AttributeError (kombu
        5.7), which ends the worker when a wake-up is acknowledged, or put back, after the loss
        of the broker; the broker gives those out again by itself.
        """
        if self._gone:
            raise ConnectionError("the connection to the broker was lost")
        return super()._connparams(asynchronous)  # type: ignore[no-untyped-call]

    def _deliver_fanout_message(self, message: Any, exchange: str) -> bool:
        """What came by PUBLISH, where Celery's own commands come."""
        try:
            if _compressed(message):
                raise ValueError(_COMPRESSED)
            return bool(super()._deliver_fanout_message(message, exchange))  # type: ignore[no-untyped-call]
        except self.connection_errors:
            raise
        except Exception as exc:
            _set_aside_meanwhile(
                f"it is no command of Celery's: {type(exc).__name__}: {exc}", message
            )
            raise Empty from exc


_COMPRESSED = "it is compressed, and kombu unpacks it whatever its size"


def _compressed(payload: Any) -> bool:
    """Whether kombu would unpack the message, which it does when it makes one of it."""
    return bool((payload.get("headers") or {}).get("compression"))


class QoS(redis.QoS):
    """kombu's book of deliveries, but for entries that it could not put back."""

    def restore_by_tag(self, tag: Any, client: Any = None, leftmost: bool = False) -> None:
        try:
            super().restore_by_tag(tag, client, leftmost)  # type: ignore[no-untyped-call]
        except _MISFITS as exc:
            with self.channel.conn_or_acquire(client) as held:
                item = held.hget(self.unacked_key, tag)
                with held.pipeline() as pipe:
                    self._remove_from_indices(tag, pipe).execute()  # type: ignore[no-untyped-call]
            _set_aside_meanwhile(f"it was never delivered: {type(exc).__name__}: {exc}", item)


Channel.QoS = QoS


class Transport(redis.Transport):
    """kombu's Redis transport with the channel above."""

    Channel = Channel


# Where a message is received


class Consumer(CeleryConsumer):  # type: ignore[misc]
    """Celery's consumer, but for messages that no task of ours can run."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[virtual.Message], None]:
        """Celery's handler, given only what it can handle."""
        handle = super().create_task_handler(*args, **kwargs)

        def on_task_received(message: virtual.Message) -> None:
            if problem := problem_of(message):
                self.set_aside(message, problem)
                return
            try:
                handle(message)
            except _MISFITS as exc:
                self.set_aside(message, f"Celery can't run it: {type(exc).__name__}: {exc}")

        return on_task_received

    def set_aside(self, message: virtual.Message, reason: str) -> None:
        """Record the message, then let the broker forget it."""
        _set_aside_meanwhile(reason, message.body)
        if not message.acknowledged:
            message.reject_log_error(log, self.connection_errors)  # type: ignore[no-untyped-call]

    def on_decode_error(self, message: virtual.Message, exc: Exception) -> None:
        """A body that can't be read: its compression or its encoding."""
        self.set_aside(message, f"its body can't be read: {exc}")

    def on_unknown_message(self, body: Any, message: virtual.Message) -> None:
        """A message that names no task."""
        self.set_aside(message, "it names no task")

    def on_unknown_task(self, body: Any, message: virtual.Message, exc: Exception) -> None:
        """A task that this worker does not have."""
        self.set_aside(message, f"it names a task that is not known: {exc}")

    def on_invalid_task(self, body: Any, message: virtual.Message, exc: Exception) -> None:
        """Headers that Celery refuses."""
        self.set_aside(message, f"Celery can't run it: {exc}")


def problem_of(message: virtual.Message) -> str | None:
    """Why the message can't be run, or None. Celery's message protocol 2, and our task only:
    Celery brings some of its own, which would run whatever the message tells them to."""
    headers = message.headers
    name = headers.get("task")
    if not isinstance(name, str):
        return "it is no Celery message: it has no header that names a task"
    if name != TASK:
        return f"it names the task {name!r}, which is not known"
    if not isinstance(headers.get("id"), str):
        return "it is no Celery message: it has no id"
    # Celery fails on another shape only after it has taken a slot, which is then gone.
    if headers.get("timelimit") not in (None, [None, None]):
        return "it has a time limit, which would end the process in the middle of a turn"
    if headers.get("eta") is not None:
        return "it has an ETA or a countdown: due times are in Postgres, see the delay of a submit"
    try:
        args, kwargs, embedded = message.decode()  # type: ignore[no-untyped-call]
    except Exception as exc:
        return f"its body can't be read: {type(exc).__name__}: {exc}"
    if not (isinstance(args, list) and isinstance(kwargs, dict) and isinstance(embedded, dict)):
        return "its body can't be read: it does not hold arguments"
    if asked := [name for name in _AFTERWARDS if embedded.get(name)]:
        return f"it asks for more when it is done: {', '.join(asked)}"
    return _wrong_arguments(args, kwargs)


def _wrong_arguments(args: list[Any], kwargs: dict[str, Any]) -> str | None:
    version = kwargs.get("v", VERSION)
    if type(version) is not int or version < 1:
        return f"version {version!r} of the wake-up is not known"
    if version > VERSION:
        # Of a newer release: the task serves other mail, and nothing is lost.
        return None
    if len(args) != 1 or not isinstance(args[0], str) or kwargs.keys() - {"v"}:
        return f"{TASK} takes one argument, the thread's id"
    try:
        split_thread_id(args[0])
    except InvalidKey as exc:
        return f"{args[0]!r} can't be a thread: {exc}"
    return None
