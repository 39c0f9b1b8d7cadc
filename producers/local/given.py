"""Servers that are given and not started: whether they will do."""

import redis

from infra.errors import BrokerUnavailable
from infra.postgres import refuse_transaction_pooler

#: Oldest Redis whose commands and replies the fleet and Celery rely on. Valkey says 7.2.4.
MINIMUM_REDIS = (6, 2)


def check_postgres(url: str) -> None:
    """Raise PostgresUnavailable or PoolerRefused unless the fleet can work on it."""
    refuse_transaction_pooler(url)


def check_broker(url: str) -> None:
    """Raise BrokerUnavailable unless it answers and is new enough."""
    try:
        with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
            version = str(client.info("server")["redis_version"])
    except (redis.RedisError, OSError, ValueError, KeyError) as exc:
        raise BrokerUnavailable(
            f"The broker is not reachable: {str(exc).rstrip('.')}.",
            "Start it or correct FLEET_REDIS_URL.",
        ) from exc
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < MINIMUM_REDIS:
        raise BrokerUnavailable(
            f"The broker is Redis {version}, which is too old.",
            "Use Redis 6.2 or later, or Valkey.",
        )
