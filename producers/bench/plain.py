"""The plain alternative: LangGraph's own PostgresSaver, with no queue, lock or ledger.

The same graph, shop calls and HTTP client as the fleet's, ``durability="sync"``, one
connection. Run as a process: it warms up, waits for the file GO to appear, does its
orders and writes one JSON line: ``{"begun", "ended", "cpu", "refunds"}``.
"""

import json
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command
from psycopg import Connection
from psycopg.rows import dict_row

from graphs import shop
from graphs.refund import build
from infra.settings import get_settings


def _refund(order_id: str, amount: Decimal) -> shop.Receipt:
    return shop.post_refund(order_id=order_id, amount=amount, request_id=str(uuid4()))


def _notify(user_id: str, text: str) -> dict[str, Any]:
    return shop.post_notification(user_id=user_id, text=text, request_id=str(uuid4()))


def refund_all(graph: Any, orders: list[str]) -> None:
    """Start each order's graph, answer its question, run it to the end."""
    for order_id in orders:
        config = {"configurable": {"thread_id": f"plain:{order_id}", "fleet_key": order_id}}
        asked = graph.invoke({"user_id": "u_42"}, config, durability="sync")
        answer = Command(resume={asked["__interrupt__"][0].id: "approved"})
        ended = graph.invoke(answer, config, durability="sync")
        if ended["outcome"] != "refunded":
            raise RuntimeError(f"order {order_id} ended as {ended['outcome']}")


def main(ready: str, go: str, *orders: str) -> None:
    """``orders``: the first ten warm up and are not counted."""
    url = get_settings().require_postgres()
    with Connection.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as c:
        graph = build(refund=_refund, notify=_notify).compile(checkpointer=PostgresSaver(c))
        refund_all(graph, list(orders[:10]))
        Path(ready).touch()
        while not Path(go).exists():
            time.sleep(0.002)
        begun, cpu = time.time(), time.process_time()
        refund_all(graph, list(orders[10:]))
        result = {
            "begun": begun,
            "ended": time.time(),
            "cpu": time.process_time() - cpu,
            "refunds": len(orders) - 10,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
