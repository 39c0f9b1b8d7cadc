"""What the workers' configuration relies on in Celery, and what it makes of our settings."""

import importlib
import importlib.util
import inspect
from typing import Any

import pytest
from celery.concurrency.asynpool import AsynPool

from infra.settings import get_settings


@pytest.fixture
def configuration(settings_env: None) -> Any:
    return importlib.reload(importlib.import_module("workers.configuration"))


def test_the_pool_is_looked_over_ten_times_a_second(configuration: Any) -> None:
    """Celery registers the pool's `timers` with its loop; ours replaces dead processes soon."""
    assert "self.timers" in inspect.getsource(AsynPool.register_with_event_loop)

    class Pool:
        def maintain_pool(self) -> None: ...

    pool = Pool()
    assert AsynPool.timers.fget(pool) == {pool.maintain_pool: 0.1}


@pytest.mark.parametrize(
    ("ours", "kombus"),
    [
        ("redis://:pw@h:1/2", "redis://:pw@h:1/2"),
        ("unix:///run/redis.sock?db=3", "redis+socket:///run/redis.sock?virtual_host=3"),
    ],
)
def test_a_broker_url_is_said_in_kombu_s_words(configuration: Any, ours: str, kombus: str) -> None:
    """A Unix socket has another scheme there."""
    assert configuration._kombu_url(ours) == kombus


def test_a_tls_broker_s_certificate_is_checked(
    settings_env: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As our own clients do; kombu alone would take any."""
    monkeypatch.setenv("FLEET_REDIS_URL", "rediss://h:1/0")
    get_settings.cache_clear()
    # A module of its own: in a reloaded one names that only this broker has would stay.
    spec = importlib.util.find_spec("workers.configuration")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.broker_use_ssl["ssl_cert_reqs"].name == "CERT_REQUIRED"
