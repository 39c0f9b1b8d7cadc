"""The wake-up, as a stock Celery worker reads it."""

import json
import sys
from pathlib import Path

from infra.devservers import Stack
from producers import (
    Fleet,
)
from tests.harness import Broker, clean_environment, eventually
from tests.integration.mailbox import (
    INPUT,
)


def test_wake_ups_stop_at_the_limit(fleet: Fleet, broker: Broker) -> None:
    """A long backlog lives in Postgres, not twice."""
    receipts = [fleet.submit("refund", f"k{n}", INPUT) for n in range(40)]
    assert all(r.published for r in receipts)
    assert broker.client.llen("fleet") == 16


STOCK_APP = """
import os
from celery import Celery

app = Celery("stock", broker=os.environ["BROKER"])
app.conf.update(accept_content=["json"], task_acks_late=True, worker_prefetch_multiplier=1)

@app.task(name="fleet.turns", bind=True)
def turns(self, *args, **kwargs):
    import json, redis
    client = redis.Redis.from_url(os.environ["BROKER"])
    seen = {"args": args, "kwargs": kwargs, "argsrepr": self.request.argsrepr,
            "queue": self.request.delivery_info["routing_key"]}
    client.rpush("seen", json.dumps(seen))
"""


def test_a_stock_celery_worker_takes_the_wake_up(
    stack: Stack, fleet: Fleet, broker: Broker, tmp_path: Path
) -> None:
    """JSON only, no configuration of ours, no binding; any key comes through and is acked."""
    (tmp_path / "stock.py").write_text(STOCK_APP)
    keys = ["A1001", "ü 'quoted' \"key\"/2:3", "x" * 255]
    for key in keys:
        fleet.submit("refund", key, INPUT)
    argv = [sys.executable, "-m", "celery", "-A", "stock", "worker", "-Q", "fleet"]
    argv += ["--pool", "solo", "-l", "INFO", "--without-gossip", "--without-mingle"]
    environment = clean_environment() | {"BROKER": broker.url, "PYTHONPATH": str(tmp_path)}
    worker = stack.spawn("stock", argv, environment, tmp_path / "stock.log", cwd=tmp_path)
    try:
        eventually(lambda: broker.client.llen("seen") == len(keys), timeout=30)
        seen = [json.loads(line) for line in broker.client.lrange("seen", 0, -1)]
        eventually(lambda: broker.client.hlen("unacked") == 0)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{worker.log()}") from None
    finally:
        worker.kill_group()
        worker.wait(5)
    threads = [f"refund:{key}" for key in keys]
    assert [s["args"] for s in seen] == [[thread] for thread in threads]
    assert [s["argsrepr"] for s in seen] == [f"({thread!r},)" for thread in threads]
    assert all(s["kwargs"] == {"v": 1} and s["queue"] == "fleet" for s in seen)
    assert broker.client.llen("fleet") == 0
