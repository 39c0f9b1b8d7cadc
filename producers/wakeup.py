"""The wake-up: a Celery task message, written to the broker without Celery.

"Thread X has mail": task `fleet.turns`, args [thread_id]. It says nothing that must not
be lost. The client and the workers look what the queue holds already, which under load is
enough, and publish with the same Lua script, which looks again and pushes only below the
limit.

The envelope is Celery's message protocol 2 as kombu's Redis transport stores it
(https://docs.celeryq.dev/en/stable/internals/protocol.html#version-2; kombu 5.7
transport/virtual/base.py `Channel.prepare_message`). The exchange is the nameless one,
whose routing key is the queue: kombu needs no binding to put such a message back.
A test has a stock worker take it.
"""

import base64
import hashlib
import json
import os
import socket
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as BrokerGone
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

TASK = "fleet.turns"
VERSION = 1
#: Seconds to reach the broker, and to wait for its reply.
TIMEOUT = 1.0
#: For a wake-up that is to be published however many the queue holds.
NO_LIMIT = 2**31

# KEYS: queues. ARGV: a limit, the end to push to (workers take from the right) and a message
# for each. Gives how many were pushed.
_PUSH = """
local pushed = 0
for i, queue in ipairs(KEYS) do
    if redis.call('LLEN', queue) < tonumber(ARGV[3 * i - 2]) then
        redis.call(ARGV[3 * i - 1], queue, ARGV[3 * i])
        pushed = pushed + 1
    end
end
return pushed
"""
_SHA = hashlib.sha1(_PUSH.encode(), usedforsecurity=False).hexdigest()


class Wake(NamedTuple):
    """One wake-up to publish; `wake_limit` as the receipt of fleet.accept says. `first`: it
    is taken before those that wait already."""

    queue: str
    thread_id: str
    wake_limit: int
    first: bool = False


def broker(url: str, *, timeout: float = TIMEOUT) -> "redis.Redis":
    """A client that gives up on a hung broker after `timeout`, and on a dropped
    connection after a second try (a wake-up sent twice does no harm).
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        socket_keepalive=True,
        health_check_interval=0,
        retry=Retry(NoBackoff(), 1, supported_errors=(BrokerGone,)),
        client_name="threadfleet-wakeup",
    )


def message(queue: str, thread_id: str) -> str:
    """The envelope, as it lies in the queue's list."""
    task_id = str(uuid.uuid4())
    kwargs = {"v": VERSION}
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    body = json.dumps([[thread_id], kwargs, embed], separators=(",", ":"))
    envelope: dict[str, Any] = {
        "body": base64.b64encode(body.encode()).decode(),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": TASK,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
            "shadow": None,
            "eta": None,
            "expires": None,
            "retries": 0,
            "timelimit": [None, None],
            "argsrepr": f"({thread_id!r},)",
            "kwargsrepr": repr(kwargs),
            "origin": f"{os.getpid()}@{socket.gethostname()}",
            "ignore_result": False,
        },
        "properties": {
            "correlation_id": task_id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
        },
    }
    return json.dumps(envelope, separators=(",", ":"))


def push(client: "redis.Redis", wakes: Sequence[Wake]) -> int:
    """Publish; how many the queues took. Raises redis' RedisError."""
    limited = {wake.queue for wake in wakes if wake.wake_limit < NO_LIMIT}
    held = {queue: int(client.llen(queue)) for queue in limited}
    wakes = [wake for wake in wakes if held.get(wake.queue, 0) < wake.wake_limit]
    if not wakes:
        return 0
    keys = [wake.queue for wake in wakes]
    args: list[Any] = []
    for wake in wakes:
        end = "RPUSH" if wake.first else "LPUSH"
        args += [wake.wake_limit, end, message(wake.queue, wake.thread_id)]
    try:
        return int(client.evalsha(_SHA, len(keys), *keys, *args))
    except NoScriptError:
        return int(client.eval(_PUSH, len(keys), *keys, *args))


def publish_many(client: "redis.Redis", wakes: Sequence[Wake]) -> bool:
    """True when the queues hold these wake-ups, or enough of them; False when the broker
    could not be reached, which means "unknown" and is no error: the sweeper sees to it.
    """
    try:
        push(client, wakes)
    except RedisError:
        return False
    return True
