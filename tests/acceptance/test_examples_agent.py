"""An agent whose tools are effects, its process killed at each step of a call."""

from pathlib import Path

from producers import Fleet
from tests.acceptance.standing import notices
from tests.harness import ROOT, Database, Shop, write_graphs
from tests.worker_processes import Workers

POINTS = ("effect.after_intent", "effect.after_call", "effect.after_result", "turn.before_commit")


def test_an_agents_tool_calls_happen_once(
    tmp_path: Path, shop: Shop, fleet: Fleet, database: Database, workers: Workers
) -> None:
    """A refund and two notices in one message, allowed by a person, four kills on the way."""
    file = write_graphs(tmp_path, agent=f"{ROOT}/tests/graphs/agent_refund.py:graph")
    database.register(file)
    kills = ";".join(f"{point}=kill" for point in POINTS)
    workers.start(failpoints=kills, graphs_file=file, max_crashes=10)
    order = shop.new_order()
    thread = fleet.submit("agent", order, {"messages": order}).thread_id
    asked = fleet.wait(thread, 30)
    assert asked.question is not None
    assert asked.question.kind == "approve"
    fleet.answer(thread, asked.question.question_id, "approved")
    ended = fleet.wait(thread, 60)
    assert ended.status == "done", ended.last_error
    assert {name for _, name, _ in workers.hits()} == set(POINTS)
    assert shop.refunds(order) == 1
    assert sorted(n["text"].split()[0] for n in notices(shop, order)) == ["refunded", "thank"]
