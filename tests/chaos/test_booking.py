"""`fleet chaos` on the booking assistant, with the files that docs/booking.md names."""

import json
from pathlib import Path

from tests.chaos.test_command import attacked
from tests.harness import ROOT

EXAMPLES = ROOT / "graphs/examples"


def test_the_booking_assistant_is_safe(tmp_path: Path) -> None:
    """Killed between its steps and around its booking, it asks and books as without a kill."""
    inputs = [json.loads(line) for line in (EXAMPLES / "bookings.jsonl").read_text().splitlines()]
    done = attacked(
        tmp_path,
        "booking",
        *("--answers", str(EXAMPLES / "booking_answers.json"), "--kills", "4"),
        file=ROOT / "langgraph.json",
        inputs=inputs,
    )
    assert done.code == 0, done.messages
    assert done.faults() == set()
    assert {*done.verdicts()} == {"receive", "plan", "act", "observe"}
