"""What `fleet bench live` makes of what its parts have measured."""

from typing import Any

import pytest

from producers.bench import live
from producers.bench.live_jobs import differences
from producers.bench.live_transcript import Transcript
from producers.cli import main

SAID = [("user", "hello"), ("assistant", "t.0 t.1 ")]
MEASURED: dict[str, dict[str, Any]] = {
    "idle": {"sessions": 2000, "rss_mb": 201.5, "cpu_cores": 0.25},
    "tokens": {"sessions": 100, "p50": 31.5, "p99": 99.5, "tokens_per_s": 2000.0},
    "reconnect": {"missed": 50, "p50": 7.5, "p99": 18.5},
    "kills": {"kills": 200, "turns": 321, "differences": 0, "faults": []},
}


def shown(said: list[tuple[str, str]], partial: dict[str, str] | None = None) -> Transcript:
    found = Transcript()
    found.said = {str(n): one for n, one in enumerate(said)}
    found.partial = partial or {}
    return found


def test_the_same_is_no_difference() -> None:
    """All that was said, in its order."""
    assert differences("a page", shown(SAID), SAID) == []


@pytest.mark.parametrize(
    "transcript",
    [
        shown(SAID[:1]),
        shown([*SAID, SAID[1]]),
        shown([*reversed(SAID)]),
        shown([SAID[0], ("assistant", "t.0 ")]),
        shown(SAID, {"a9": "t.0 "}),
    ],
    ids=["missing", "twice", "order", "text", "left standing"],
)
def test_anything_else_is_one(transcript: Transcript) -> None:
    """Told with who shows it."""
    (fault,) = differences("a page", transcript, SAID)
    assert fault.startswith("a page shows otherwise")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What the parts give, without any server."""
    found = {part: dict(numbers) for part, numbers in MEASURED.items()}
    for part, numbers in found.items():
        monkeypatch.setattr(live, part, lambda *_, given=numbers: given)
    return found


def test_all_four_parts_are_shown(
    measured: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each number in a row of its own, with its goal where it has one."""
    assert main(["bench", "live"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    numbers = [float(row[1]) for row in rows if not row[0].startswith("load average")]
    assert numbers == [201.5, 0.25, 31.5, 99.5, 2000, 7.5, 18.5, 200, 321, 0]
    assert {row[0]: row[2] for row in rows}["transcripts other than without kills"] == "0"


def test_a_difference_is_a_failure(
    measured: dict[str, dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, and what it was."""
    measured["kills"] |= {"differences": 1, "faults": ["a page shows otherwise: …"]}
    assert main(["bench", "live"]) == 1
    assert "a page shows otherwise" in capsys.readouterr().err
    assert main(["bench", "live", "--json"]) == 1
