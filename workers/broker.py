"""The process's Redis client for wake-ups: one per process, opened after the fork."""

import os

import redis

from infra.settings import get_settings

_clients: dict[int, redis.Redis] = {}


def broker() -> redis.Redis:
    """The client of this process. Calls give up after about two seconds."""
    client = _clients.get(os.getpid())
    if client is None:
        client = redis.Redis.from_url(
            get_settings().require_redis(),
            socket_timeout=2,
            socket_connect_timeout=2,
            health_check_interval=15,
        )
        _clients.clear()
        _clients[os.getpid()] = client
    return client
