"""The booking assistant on real workers that die at every named point, once each.

By rules and by a model: one booking, the same questions, and no decision made anew once it was
recorded.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from producers import Fleet
from tests.booking.model import says
from tests.harness import Database, eventually
from tests.openai_server import OpenAIServer, Say
from tests.worker_processes import Workers

POINTS = (
    *("claim.after_commit", "claim.after_lock", "turn.at_interrupt"),
    *("effect.before_intent", "effect.after_intent", "effect.after_call", "effect.after_result"),
    *("turn.before_commit", "turn.before_unlock", "turn.after_commit"),
)
STORY = ("a room for 8 tomorrow at 2pm", "the second one", "yes")
NOW = "2030-06-03T09:00:00+00:00"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A model that never says the same twice: each reply bears its number."""
    numbered = OpenAIServer()

    def script(body: dict[str, Any]) -> Say:
        said = says(body)
        mark = f"#{len(numbered.asked)}"
        tools = tuple(
            (name, {**args, "message": f"{args['message']} {mark}"} if "message" in args else args)
            for name, args in said.tools
        )
        return Say(f"{said.text} {mark}" if said.text else "", tools)

    numbered.script = script
    with numbered:
        yield numbered


def tell(fleet: Fleet, told: list[str]) -> list[dict[str, Any]]:
    """The whole story in one thread; gives what was asked, as it was asked."""
    asked: list[dict[str, Any]] = []
    thread_id = fleet.submit(
        "booking", "b1", {"messages": [{"role": "user", "content": told[0]}]}
    ).thread_id
    for text in (*told[1:], None):
        status = eventually(
            lambda: (s := fleet.status(thread_id)).status in ("waiting", "done", "failed") and s, 60
        )
        assert status and status.status == ("done" if text is None else "waiting"), status
        if text is not None:
            assert status.question is not None
            asked.append(status.question.payload)
            fleet.answer(thread_id, status.question.question_id, text)
            eventually(lambda: fleet.status(thread_id).status != "waiting", 60)
    return asked


def killed_everywhere(
    workers: Workers, fleet: Fleet, database: Database, **settings: Any
) -> list[dict[str, Any]]:
    """The story while each point kills the process that meets it first."""
    database.fetch("SELECT fleet.move_clock(%s::timestamptz - statement_timestamp())", NOW)
    failpoints = ";".join(f"{point}=kill" for point in POINTS)
    workers.start(concurrency=2, failpoints=failpoints, max_crashes=len(POINTS) + 1, **settings)
    asked = tell(fleet, [*STORY])
    assert {name for _, name, _ in workers.hits()} >= {*POINTS} - {"turn.before_unlock"}
    return asked


def test_by_rules_a_room_is_booked_once(workers: Workers, fleet: Fleet, database: Database) -> None:
    """One booking of what was picked; each question once."""
    asked = killed_everywhere(workers, fleet, database)
    assert [a["kind"] for a in asked] == ["select_room", "confirm"]
    assert database.fetch("SELECT room_id FROM booking.bookings JOIN booking.rooms USING (room_no)")
    assert database.value("SELECT count(*) FROM booking.bookings") == 1
    questions = database.fetch("SELECT kind, status FROM fleet.questions ORDER BY asked_at")
    assert questions == [("select_room", "answered"), ("confirm", "answered")]


def test_by_a_model_nothing_is_decided_anew(
    workers: Workers, fleet: Fleet, database: Database, server: OpenAIServer
) -> None:
    """What people were asked is what the ledger holds, and the model was asked once more only
    for calls whose process died before their answer was recorded."""
    asked = killed_everywhere(
        workers, fleet, database, model="openai:test", model_base_url=server.url
    )
    assert [a["kind"] for a in asked] == ["select_room", "confirm"]
    assert database.value("SELECT count(*) FROM booking.bookings") == 1
    calls = [e for e in fleet.status("booking:b1").effects if e.name == "model.call"]
    assert len(calls) == 5 and {c.state for c in calls} == {"done"}
    recorded = [c.result["messages"][0] for c in calls]
    said = [m["tool_calls"][0]["args"].get("message") for m in recorded if m["tool_calls"]]
    assert [a["message"] for a in asked] == [text for text in said if text]
    # Killed with the model's answer, or before it was committed: asked again.
    lost = [p for _, p, _ in workers.hits() if p in ("effect.after_call", "effect.after_result")]
    assert len(server.asked) <= len(calls) + len(lost)
