"""The broker: reached, new enough, evicts nothing, and keeps what it was given over a restart.

Losing all of it loses no work, only time: the mail is in Postgres. A broker that evicts or
refuses writes without a word does so again and again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import redis

from infra.errors import FleetError

from ..local.given import MINIMUM_REDIS, check_broker
from .finding import Finding, note, ok, problem, warning

#: Of maxmemory.
NEARLY_FULL = 0.8


def look(url: str) -> Iterator[Finding]:
    """All checks; only the first where the broker can't be used."""
    try:
        check_broker(url)
        with redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5) as client:
            info: dict[str, Any] = client.info("everything")
            saves = _saves(client)
    except (FleetError, redis.RedisError) as exc:
        message, hint = getattr(exc, "message", None), getattr(exc, "hint", "")
        yield problem(
            "broker", message or f"The broker said: {exc}.", hint or "Correct FLEET_REDIS_URL."
        )
        return
    yield server(info)
    yield eviction(info)
    yield persistence(info, saves)


def _saves(client: redis.Redis) -> bool | None:
    """Whether snapshots are configured; None where the server does not say (a hosted one)."""
    try:
        return bool(client.config_get("save")["save"])
    except (redis.RedisError, KeyError):
        return None


def server(info: Mapping[str, Any]) -> Finding:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = str(info.get("valkey_version", info["redis_version"]))
    data = {"server": name, "version": version}
    if info.get("redis_mode") == "cluster":
        return problem(
            "broker",
            f"{name} {version} is a cluster, which Celery can't use as its broker.",
            "Use a single server (with replicas, if wished).",
            **data,
        )
    if info.get("role") == "slave":
        return problem(
            "broker",
            f"{name} {version} is a replica: nothing can be written there.",
            "Give FLEET_REDIS_URL the primary's address.",
            **data,
        )
    oldest = ".".join(map(str, MINIMUM_REDIS))
    return ok("broker", f"{name} {version} answers (Redis {oldest} or later is needed).", **data)


def eviction(info: Mapping[str, Any]) -> Finding:
    policy, most = info.get("maxmemory_policy"), int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0))
    data: dict[str, Any] = {"policy": policy, "maxmemory": most, "used": used}
    if policy is None:
        return note("eviction", "The broker does not say whether it evicts keys.", **data)
    if policy != "noeviction":
        return problem(
            "eviction",
            f"The broker may evict wake-ups when its memory is full: maxmemory-policy is {policy}.",
            "Set `maxmemory-policy noeviction` in its configuration.",
            **data,
        )
    if most and used > NEARLY_FULL * most:
        return warning(
            "eviction",
            f"The broker uses {used / most:.0%} of its maxmemory; when it is full it refuses "
            "wake-ups.",
            "Raise maxmemory, or find out what else is stored there.",
            **data,
        )
    return ok("eviction", "No key is evicted (noeviction).", **data)


def persistence(info: Mapping[str, Any], saves: bool | None) -> Finding:
    aof = str(info.get("aof_enabled")) == "1"
    failed = [
        name
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if info.get(name, "ok") != "ok" and (aof or not name.startswith("aof"))
    ]
    data = {"appendonly": aof, "save": saves}
    fix = "Set `appendonly yes` in its configuration."
    if failed:
        return problem(
            "persistence",
            f"The broker could not write to its disk: {', '.join(failed)}.",
            "See its log; it may be full.",
            failed=failed,
            **data,
        )
    if aof:
        return ok("persistence", "The broker keeps what it was given (append-only file).", **data)
    again = "the sweeper wakes again what was lost, which takes seconds to minutes"
    if saves is False:
        return problem(
            "persistence",
            f"The broker keeps nothing over a restart; {again}.",
            fix,
            **data,
        )
    return warning(
        "persistence",
        f"The broker has no append-only file: a restart loses its last minutes; {again}.",
        fix,
        **data,
    )
