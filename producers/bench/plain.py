"""The plain alternative: LangGraph's own PostgresSaver, with no queue, lock or ledger.

    python -m producers.bench.plain ORDERS DONE

The same graph, shop calls and HTTP client as the fleet's, ``durability="sync"``, one
connection. A process takes order ids from the pipe ORDERS, refunds each (start, question,
answer, end) and writes its id to the pipe DONE. Several may share the pipes: records are of
one size, so each read and write is whole.
"""

import os
import sys
from decimal import Decimal
from typing import Any
from uuid import uuid4

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.types import Command
from psycopg import Connection
from psycopg.rows import dict_row

from graphs import shop
from graphs.refund import build
from infra.settings import get_settings

#: Bytes of an order id in the pipes.
RECORD = 16


def _refund(order_id: str, amount: Decimal) -> shop.Receipt:
    return shop.post_refund(order_id=order_id, amount=amount, request_id=str(uuid4()))


def _notify(user_id: str, text: str) -> dict[str, Any]:
    return shop.post_notification(user_id=user_id, text=text, request_id=str(uuid4()))


def _refund_one(graph: Any, order_id: str) -> None:
    config = {"configurable": {"thread_id": f"plain:{order_id}", "fleet_key": order_id}}
    asked = graph.invoke({"user_id": "u_42"}, config, durability="sync")
    answer: Command[Any] = Command(resume={asked["__interrupt__"][0].id: "approved"})
    ended = graph.invoke(answer, config, durability="sync")
    if ended["outcome"] != "refunded":
        raise RuntimeError(f"order {order_id} ended as {ended['outcome']}")


def main(orders: str, done: str) -> None:
    url = get_settings().require_postgres()
    with Connection.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row) as c:
        graph = build(refund=_refund, notify=_notify).compile(checkpointer=PostgresSaver(c))
        incoming, outgoing = os.open(orders, os.O_RDONLY), os.open(done, os.O_WRONLY)
        while record := os.read(incoming, RECORD):
            _refund_one(graph, record.decode())
            os.write(outgoing, record)


if __name__ == "__main__":
    main(*sys.argv[1:])
