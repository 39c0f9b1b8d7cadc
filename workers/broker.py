"""The process's client of the broker, for wake-ups: opened after the fork."""

import os

import redis

from infra.settings import get_settings
from producers import wakeup

_clients: dict[int, redis.Redis] = {}


def broker() -> redis.Redis:
    """The client of this process; its calls give up after about a second."""
    client = _clients.get(os.getpid())
    if client is None:
        client = wakeup.broker(get_settings().require_redis())
        _clients.clear()
        _clients[os.getpid()] = client
    return client
