"""The fleet's side of a throughput run: submit, answer what is asked, until all is done.

One producer's process, this one, does what services and people would do: it hands orders
over in small batches (`Fleet.submit_many`) and answers the questions one by one, each with a
`Fleet.answer` of its own.
"""

import time
from collections.abc import Sequence

from infra.sql import query
from producers.bench.rig import BenchFailed, Rig

# Of a producer that polls: its queries are counted with the rest.
_PAUSE = 0.02


def refund_all(rig: Rig, orders: Sequence[str], batch: int, deadline: float) -> None:
    """Whole refunds: until every thread is done.

    batch: orders submitted in one transaction, between two looks for open questions.
    deadline: of time.monotonic().
    """
    waiting, answered = list(reversed(orders)), 0
    while answered < len(orders):
        now = [waiting.pop() for _ in range(min(batch, len(waiting)))]
        rig.fleet.submit_many([("refund", order_id, {"user_id": "u_42"}) for order_id in now])
        asked = rig.conn.execute(query("bench_questions")).fetchall()
        for thread_id, question_id in asked:
            rig.fleet.answer(thread_id, question_id, "approved")
        answered += len(asked)
        if not waiting and not asked:
            _pause(deadline)
    while rig.value("bench_unfinished"):
        _pause(deadline)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BenchFailed(
            "The fleet did not finish its refunds in time.", "See docs/benchmarks.md."
        )
    time.sleep(_PAUSE)
