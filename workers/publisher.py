"""The publisher: one thread of the process that brings events to the broker, for all slots.

A turn only adds to its feed and goes on. What a feed holds goes out as one batch within
``token_interval``, or at once where somebody waits for it and nothing went out just before.
With the first that is due go all others: under load one round trip serves many turns.
Where nobody reads it is let go. A broker that is away or hangs costs this thread a timeout;
what comes in the next second is let go, and readers find in Postgres what is durable
(docs/events.md).
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeAlias

import orjson
import psycopg
from redis.connection import ConnectionPool
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as BrokerHangs

from infra.errors import FleetError
from infra.event_stream import AUDIENCE, channel, database_of, stream
from infra.failpoints import FailpointError, failpoint
from infra.postgres import connect
from infra.redis import script
from infra.settings import Settings
from infra.sql import query
from workers.audience import Audience
from workers.feed import Feed

log = logging.getLogger("fleet.publisher")

#: Seconds to reach the broker and to wait for its reply, and how long it is then left alone.
_TIMEOUT, _QUIET = 0.5, 1.0
#: Batches that one call of the broker's script takes.
_AT_ONCE = 32

_Batch: TypeAlias = tuple[Feed, list[dict[str, Any]]]


class Publisher:
    """Starts its thread with the first event. :func:`publisher` gives that of the process.

    clock: seconds of Unix time, by which batches grow old; the broker's if left out.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] | None = None) -> None:
        self._settings = settings
        self._audience = Audience(settings.token_interval)
        self._kept = str(settings.events_kept)
        self._age = str(int(settings.events_age * 1000))
        self._clock = clock
        self._database = database_of(settings.require_redis())
        self._script = script("publish")
        self._sha = hashlib.sha1(self._script.encode(), usedforsecurity=False).hexdigest()
        self._changed = threading.Condition(threading.Lock())
        self._feeds: list[Feed] = []
        self._due = float("inf")
        self._wakes_at = 0.0
        self._sent_at = 0.0
        self._sending = False
        self._thread: threading.Thread | None = None
        self._connection: Any = None
        self._quiet_until = 0.0

    # What a turn calls

    def tell(self, feed: Feed, event: dict[str, Any], at_once: bool = False) -> None:
        """Add an event to the feed. Does not wait."""
        now, interval = time.monotonic(), self._audience.interval
        with self._changed:
            if not feed.events:
                self._feeds.append(feed)
            feed.events.append(event)
            due = max(now, self._sent_at + interval) if at_once else now + interval
            self._due = min(self._due, due)
            if self._due < self._wakes_at:
                self._wakes_at = self._due
                # Not one only: that might be who waits in `flush`.
                self._changed.notify_all()
        if self._thread is None:
            self._begin()

    def join(self, feed: Feed, message_id: str, text: str) -> bool:
        """Add to the text of the last event, if that is one of this message not yet sent."""
        with self._changed:
            if not feed.events:
                return False
            last = feed.events[-1]
            if last["type"] != "token" or last["data"]["message_id"] != message_id:
                return False
            last["data"]["text"] += text
            return True

    def flush(self, seconds: float) -> bool:
        """Send what there is now, and wait so long at most; whether all of it is sent."""
        with self._changed:
            if self._feeds:
                self._due = 0.0
                self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._feeds and not self._sending, seconds)

    # The thread

    def _begin(self) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="fleet-publisher", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            batches = self._next()
            try:
                self._send(batches)
            except Exception:
                # Nobody would start it again.
                log.exception("events were not published")

    def _next(self) -> list[_Batch]:
        """Wait until something is due, and take all that there is."""
        with self._changed:
            self._sending = False
            self._changed.notify_all()
            while not self._feeds or self._due > time.monotonic():
                self._wait()
            self._wakes_at, self._due = 0.0, float("inf")
            self._sent_at = time.monotonic()
            self._sending = True
            feeds, self._feeds = self._feeds, []
            return [(feed, feed.take()) for feed in feeds]

    def _wait(self) -> None:
        """Until something is due. Before `soonest` nothing can be, so who tells meanwhile need
        not wake this thread."""
        now, due = time.monotonic(), self._due if self._feeds else float("inf")
        soonest = self._sent_at + self._audience.interval
        self._wakes_at = min(due, soonest) if soonest > now else due
        self._changed.wait(None if self._wakes_at == float("inf") else self._wakes_at - now)

    def _send(self, batches: list[_Batch]) -> None:
        if time.monotonic() < self._quiet_until:
            return
        try:
            if not self._heard():
                return
            for feed, _ in batches:
                failpoint("events.before_publish", feed.place)
            for (feed, events), reply in zip(batches, self._published(batches), strict=True):
                if reply != b"":
                    self._refused(feed, events, reply)
                failpoint("events.after_publish", feed.place)
        except (RedisError, OSError, FailpointError) as exc:
            self._quiet_until = time.monotonic() + _QUIET
            log.warning("events are not published for now: %s", exc)

    def _heard(self) -> bool:
        """Whether anybody may read it. Raises RedisError, OSError."""
        if self._audience.assumed:
            return True
        (found,) = self._call([("EXISTS", AUDIENCE)])
        # Who may not look publishes.
        return self._audience.found(found != 0)

    def _published(self, batches: list[_Batch]) -> list[Any]:
        """What the broker says of each: nothing, the last id of a stream that is ahead, an error.

        Raises RedisError, OSError.
        """
        parts = [batches[i : i + _AT_ONCE] for i in range(0, len(batches), _AT_ONCE)]
        replies = self._call([self._command(part) for part in parts])
        return [
            each
            for part, reply in zip(parts, replies, strict=True)
            for each in (reply if isinstance(reply, list) else [reply] * len(part))
        ]

    def _command(self, batches: list[_Batch]) -> tuple[Any, ...]:
        now = "" if self._clock is None else str(int(self._clock() * 1000))
        command: list[Any] = ["EVALSHA", self._sha, len(batches)]
        command += [stream(feed.thread_id) for feed, _ in batches]
        command += [self._kept, self._age, now]
        for feed, events in batches:
            heard = channel(feed.thread_id, self._database)
            command += [events[-1]["id"], orjson.dumps(events), heard]
        return tuple(command)

    def _call(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """One round trip; the replies, an error of the broker's among them.

        Raises RedisError, OSError.
        """
        conn = self._connected()
        try:
            return self._exchange(conn, commands)
        except BrokerHangs:
            conn.disconnect()
            raise
        except (RedisError, OSError):
            # Dropped while nobody used it, as a rule; a batch that comes again is refused.
            conn.disconnect()
        try:
            return self._exchange(conn, commands)
        except BaseException:
            conn.disconnect()
            raise

    def _exchange(self, conn: Any, commands: list[tuple[Any, ...]]) -> list[Any]:
        conn.send_packed_command(conn.pack_commands(commands))
        replies = [self._reply(conn) for _ in commands]
        if any(isinstance(reply, NoScriptError) for reply in replies):
            # Loaded for all that come; the batches go out once more, in their order.
            conn.send_command("SCRIPT", "LOAD", self._script)
            conn.read_response()
            conn.send_packed_command(conn.pack_commands(commands))
            replies = [self._reply(conn) for _ in commands]
        return replies

    def _reply(self, conn: Any) -> Any:
        try:
            return conn.read_response()
        except ResponseError as exc:
            return exc

    def _connected(self) -> Any:
        if self._connection is None:
            pool = ConnectionPool.from_url(
                self._settings.require_redis(),
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
                socket_keepalive=True,
                client_name="threadfleet-events",
            )
            self._connection = pool.make_connection()
        return self._connection

    # A stream that is ahead

    def _refused(self, feed: Feed, events: list[dict[str, Any]], reply: Any) -> None:
        """The stream has newer events, or these."""
        if not isinstance(reply, bytes):
            said = reply[0].decode(errors="replace") if isinstance(reply, list) else reply
            log.warning("events of %s were refused by the broker: %s", feed.thread_id, said)
            return
        top = int(reply.partition(b"-")[0])
        if top <= feed.epoch:
            return
        # A claim that came after ours, mostly: readers have what is durable from Postgres.
        try:
            with closing(connect(self._settings.require_postgres(), "fleet-publisher")) as conn:
                args = {"thread_id": feed.thread_id, "top": top}
                row = conn.execute(query("outlive_stream"), args).fetchone()
        except (FleetError, psycopg.Error) as exc:
            log.warning("events of %s were not published: %s", feed.thread_id, exc)
            return
        if row is not None and row[0]:
            log.warning("the stream of %s was ahead of Postgres: begun anew", feed.thread_id)
            key = stream(feed.thread_id)
            self._call([("DEL", key), self._command([(feed, events)])])


#: By the addresses of broker and database.
_of_process: dict[tuple[str, str], Publisher] = {}
_lock = threading.Lock()


def publisher(settings: Settings) -> Publisher:
    """The process's one, for this fleet."""
    fleet = (settings.require_redis(), settings.require_postgres())
    with _lock:
        if fleet not in _of_process:
            _of_process[fleet] = Publisher(settings)
        return _of_process[fleet]


def flush(seconds: float) -> None:
    """At the process's end: let nothing lie that could still go out."""
    for one in [*_of_process.values()]:
        one.flush(seconds)


def _begin_afresh() -> None:
    """In a forked child, which has none of its parent's threads."""
    global _lock
    _lock = threading.Lock()
    _of_process.clear()


os.register_at_fork(after_in_child=_begin_afresh)
