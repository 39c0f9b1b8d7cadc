"""What `fleet show` says is to be done next."""

from typing import Any

import pytest

from producers.cli.look import _next_steps

Q1 = {"question_id": "q1", "kind": "approve"}
Q2 = {"question_id": "q2", "kind": "value"}
TALK = {"question_id": "q4", "kind": "clarify", "payload": {"message": "When?", "text": True}}
Q3 = {"question_id": "q3", "kind": "continue"}


def thread(**fields: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {"questions": [], "messages": [], "effects": []}
    return {"thread_id": "refund:A1", "generation": 2, "status": "waiting"} | nothing | fields


@pytest.mark.parametrize(
    ("found", "steps"),
    [
        (thread(status="done"), []),
        (thread(questions=[Q1]), ["fleet answer refund:A1 --approve (or --reject)"]),
        (thread(questions=[Q2]), ["fleet answer refund:A1 --value JSON"]),
        (thread(questions=[TALK]), ["fleet answer refund:A1 --value '\"in your words\"'"]),
        (thread(questions=[Q3]), ["fleet answer refund:A1 --approve"]),
        (
            thread(questions=[Q1, Q2]),
            [
                "fleet answer refund:A1 --question q1 --approve (or --reject)",
                "fleet answer refund:A1 --question q2 --value JSON",
            ],
        ),
        (
            thread(
                status="in_doubt",
                effects=[
                    {"request_id": "r0", "state": "intent", "generation": 1},
                    {"request_id": "r1", "state": "done", "generation": 2},
                    {"request_id": "r2", "state": "intent", "generation": 2},
                ],
            ),
            ["fleet resolve refund:A1 r2 --happened JSON (or --did-not-happen)"],
        ),
        (
            thread(status="failed", messages=[{"status": "done"}, {"status": "dead"}]),
            ["fleet retry refund:A1 (or fleet drop refund:A1)"],
        ),
    ],
)
def test_the_next_step_is_a_command(found: dict[str, Any], steps: list[str]) -> None:
    """One for each thing that a person is waited for."""
    assert [line.split(": ", 1)[1] for line in _next_steps(found)] == steps
