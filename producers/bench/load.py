"""The fleet's side of a throughput run: submit, answer what is asked, until all is done.

One producer's process, this one, does what services and people would do: it hands orders
over in small batches (`Fleet.submit_many`), looks at the open questions and answers them one by
one, each with a `Fleet.answer` of its own.
"""

import time
from collections.abc import Sequence

from psycopg.rows import dict_row

from infra.sql import query
from producers.bench.rig import BenchFailed, Rig
from producers.status import Question

#: Seconds between looks: the producer's own queries cost too, and are counted with the rest.
_PAUSE = 0.02
_LONGEST_PAUSE = 0.25


def refund_all(rig: Rig, orders: Sequence[str], batch: int, deadline: float) -> None:
    """Whole refunds: until every thread is done.

    batch: orders submitted in one transaction, between two looks for open questions.
    deadline: of time.monotonic().
    """
    waiting, answered = list(reversed(orders)), 0
    while answered < len(orders):
        if now := [waiting.pop() for _ in range(min(batch, len(waiting)))]:
            rig.fleet.submit_many([("refund", order_id, {"user_id": "u_42"}) for order_id in now])
        asked = _questions(rig)
        for thread_id, question in asked:
            rig.fleet.answer(thread_id, question, "approved")
        answered += len(asked)
        if not waiting and not asked:
            _pause(_PAUSE, deadline)
    while left := rig.value("bench_unfinished"):
        # A few looks only, close to each other near the end.
        _pause(min(_LONGEST_PAUSE, 0.002 * left), deadline)


def _questions(rig: Rig) -> list[tuple[str, Question]]:
    with rig.conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(query("bench_questions")).fetchall()
    return [(row["thread_id"], Question.model_validate(row)) for row in rows]


def _pause(seconds: float, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise BenchFailed(
            "The fleet did not finish its refunds in time.", "Run it again on an idle machine."
        )
    time.sleep(seconds)
